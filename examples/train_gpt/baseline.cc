#include "examples/train_gpt/baseline.h"

#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "examples/train_gpt/curve.h"
#include "examples/train_gpt/gpt.h"
#include "examples/train_gpt/gradients.h"
#include "examples/train_gpt/reference.h"
#include "examples/train_gpt/text.h"

namespace train_gpt {

void RunBaseline(const Flags& flags) {
  const std::string text = ReadText(flags.text);
  const auto weights = InitialWeights(flags.model, flags.seed);
  Gpt gpt(flags.model, weights);
  Reference reference(flags.optimizer, flags.model.num_heads, weights);
  Curve curve(flags, 0);
  const int64_t piece_size = flags.batch / flags.baseline_split;
  for (int64_t step = 0; step < flags.num_steps; ++step) {
    double loss = 0;
    std::vector<at::Tensor> pieces;
    for (int64_t i = 0; i < flags.baseline_split; ++i) {
      const auto gradients =
          gpt.Backward(Samples(text, flags.seed, flags.model.context + 1,
                               {step, i * piece_size, piece_size}));
      loss += gradients.loss / static_cast<double>(flags.baseline_split);
      pieces.push_back(Flatten(gradients));
    }
    const at::NoGradGuard no_grad;
    const double norm =
        reference.Step(Unflatten(MeanOf(pieces), gpt.parameters()));
    for (size_t i = 0; i < weights.size(); ++i) {
      at::Tensor weight = gpt.parameters()[i].tensor;
      weight.copy_(reference.masters()[i].tensor);
    }
    curve.Add({loss, norm});
  }
  curve.Finish();
}

}  // namespace train_gpt
