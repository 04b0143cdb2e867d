// Steps the example's baseline optimizer with seeded gradients and writes what
// went in and what came out, for torch's own optimizers to judge.
//
//   write_reference_steps FOLDER [flags of train_gpt]
//
// FOLDER/parameters.txt: "name rows cols" (cols 0: a vector) a line;
// before.bin, gradients.bin and after.bin: f32 values of all parameters one
// behind the other, the last two once a step.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "examples/train_gpt/flags.h"
#include "examples/train_gpt/gpt.h"
#include "examples/train_gpt/reference.h"

namespace {

using train_gpt::NamedTensor;

void Append(std::ofstream& file, const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  file.write(static_cast<const char*>(dense.const_data_ptr()),
             static_cast<std::streamsize>(dense.nbytes()));
}

// Wide, tall and square matrices, a fused one, an embedding and vectors.
std::vector<NamedTensor> Parameters() {
  return {{"embed.weight", at::randn({20, 12})},
          {"a.qkv.weight", at::randn({36, 12})},
          {"a.qkv.bias", at::randn({36})},
          {"a.up.weight", at::randn({48, 12})},
          {"a.down.weight", at::randn({12, 48})},
          {"a.out.weight", at::randn({12, 12})},
          {"lm_head.weight", at::randn({20, 12})}};
}

std::vector<at::Tensor> Gradients(const std::vector<NamedTensor>& parameters,
                                  int64_t step) {
  std::vector<at::Tensor> gradients;
  for (const NamedTensor& parameter : parameters) {
    // The norm lies below the limit of clipping in some steps, above in others.
    const double size = step % 2 == 0 ? 0.01 : 0.3;
    gradients.push_back(at::randn(parameter.tensor.sizes()) * size);
  }
  return gradients;
}

void Describe(const std::string& folder,
              const std::vector<NamedTensor>& parameters) {
  std::ofstream list(folder + "/parameters.txt");
  std::ofstream before(folder + "/before.bin", std::ios::binary);
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor& tensor = parameter.tensor;
    list << parameter.name << ' ' << tensor.size(0) << ' '
         << (tensor.dim() == 2 ? tensor.size(1) : 0) << '\n';
    Append(before, tensor);
  }
}

void Run(const std::string& folder, const train_gpt::Flags& flags) {
  at::manual_seed(flags.seed);
  const auto parameters = Parameters();
  Describe(folder, parameters);
  std::ofstream in(folder + "/gradients.bin", std::ios::binary);
  std::ofstream out(folder + "/after.bin", std::ios::binary);
  train_gpt::Reference reference(flags.optimizer, flags.model.num_heads,
                                 parameters);
  for (int64_t step = 0; step < flags.num_steps; ++step) {
    const auto gradients = Gradients(parameters, step);
    reference.Step(gradients);
    for (size_t i = 0; i < gradients.size(); ++i) {
      Append(in, gradients[i]);
      Append(out, reference.masters()[i].tensor);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = 2;
  if (argc < 2) return exit_code;
  const auto flags = train_gpt::ParseFlags(argc - 1, argv + 1, exit_code);
  if (!flags) return exit_code;
  try {
    Run(argv[1], *flags);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
