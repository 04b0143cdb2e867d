#include "examples/train_gpt/gpt.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>

namespace train_gpt {
namespace {

constexpr int64_t kNumBytes = 256;

// Makes parameters one after the other from one seeded generator.
class Initializer {
 public:
  explicit Initializer(uint64_t seed) { at::manual_seed(seed); }

  void Random(const std::string& name, int64_t rows, int64_t cols, double std) {
    weights_.push_back({name, at::randn({rows, cols}) * std});
  }
  void Linear(const std::string& name, int64_t out, int64_t in) {
    Random(name + ".weight", out, in, 1 / std::sqrt(static_cast<double>(in)));
    weights_.push_back({name + ".bias", at::zeros({out})});
  }
  void Norm(const std::string& name, int64_t dim) {
    weights_.push_back({name + ".weight", at::ones({dim})});
    weights_.push_back({name + ".bias", at::zeros({dim})});
  }
  std::vector<NamedTensor> Take() { return std::move(weights_); }

 private:
  std::vector<NamedTensor> weights_;
};

std::string BlockName(int64_t index) {
  return "blocks." + std::to_string(index);
}

}  // namespace

std::vector<NamedTensor> InitialWeights(const ModelFlags& model,
                                        uint64_t seed) {
  Initializer make(seed);
  const int64_t dim = model.dim;
  make.Random("embed.weight", kNumBytes, dim, 0.02);
  make.Random("pos_embed.weight", model.context, dim, 0.02);
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const std::string block = BlockName(i);
    make.Norm(block + ".ln1", dim);
    make.Linear(block + ".attn.qkv", 3 * dim, dim);
    make.Linear(block + ".attn.out", dim, dim);
    make.Norm(block + ".ln2", dim);
    make.Linear(block + ".mlp.up", 4 * dim, dim);
    make.Linear(block + ".mlp.down", dim, 4 * dim);
  }
  make.Norm("ln_f", dim);
  make.Random("lm_head.weight", kNumBytes, dim, 0.02);
  return make.Take();
}

bool TakesMuon(const NamedTensor& parameter) {
  return parameter.tensor.dim() >= 2 &&
         parameter.name.find("embed") == std::string::npos &&
         parameter.name.find("lm_head") == std::string::npos;
}

Gpt::Gpt(const ModelFlags& model, const std::vector<NamedTensor>& weights)
    : model_(model) {
  for (const NamedTensor& weight : weights) {
    at::Tensor rounded =
        weight.tensor.to(model.bf16 ? at::kBFloat16 : at::kFloat,
                         /*non_blocking=*/false, /*copy=*/true);
    parameters_.push_back({weight.name, rounded.set_requires_grad(true)});
  }
}

Gpt::Gradients Gpt::Backward(const at::Tensor& samples) {
  for (NamedTensor& parameter : parameters_) {
    parameter.tensor.mutable_grad().reset();
  }
  const at::Tensor loss = Loss(samples);
  loss.backward();
  Gradients gradients;
  gradients.loss = loss.item<double>();
  for (const NamedTensor& parameter : parameters_) {
    gradients.tensors.push_back(parameter.tensor.grad());
  }
  return gradients;
}

at::Tensor Gpt::Loss(const at::Tensor& samples) const {
  const at::Tensor inputs = samples.narrow(1, 0, model_.context);
  const at::Tensor targets = samples.narrow(1, 1, model_.context);
  at::Tensor x = at::embedding(Parameter("embed.weight"), inputs) +
                 Parameter("pos_embed.weight");
  for (int64_t i = 0; i < model_.num_layers; ++i) {
    const std::string block = BlockName(i);
    x = x + Attention(block + ".attn", Norm(block + ".ln1", x));
    x = x + Mlp(block + ".mlp", Norm(block + ".ln2", x));
  }
  const at::Tensor logits =
      at::linear(Norm("ln_f", x), Parameter("lm_head.weight"));
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat),
                                targets.flatten());
}

at::Tensor Gpt::Attention(const std::string& block, const at::Tensor& x) const {
  const int64_t head_dim = model_.dim / model_.num_heads;
  // [3, batch, heads, context, head_dim]
  const at::Tensor qkv = Linear(block + ".qkv", x)
                             .unflatten(2, {3, model_.num_heads, head_dim})
                             .permute({2, 0, 3, 1, 4});
  const at::Tensor future =
      at::ones({model_.context, model_.context}, at::kBool).triu(1);
  const at::Tensor scores = (at::matmul(qkv[0], qkv[1].transpose(-2, -1)) /
                             std::sqrt(static_cast<double>(head_dim)))
                                .masked_fill(future, -INFINITY);
  const at::Tensor mixed = at::matmul(scores.softmax(-1), qkv[2]);
  return Linear(block + ".out", mixed.transpose(1, 2).flatten(2));
}

at::Tensor Gpt::Mlp(const std::string& block, const at::Tensor& x) const {
  return Linear(block + ".down", at::gelu(Linear(block + ".up", x)));
}

at::Tensor Gpt::Linear(const std::string& layer, const at::Tensor& x) const {
  return at::linear(x, Parameter(layer + ".weight"),
                    Parameter(layer + ".bias"));
}

at::Tensor Gpt::Norm(const std::string& layer, const at::Tensor& x) const {
  return at::layer_norm(x, {model_.dim}, Parameter(layer + ".weight"),
                        Parameter(layer + ".bias"));
}

const at::Tensor& Gpt::Parameter(const std::string& name) const {
  const auto found =
      std::find_if(parameters_.begin(), parameters_.end(),
                   [&](const NamedTensor& p) { return p.name == name; });
  if (found == parameters_.end()) throw std::logic_error("no " + name);
  return found->tensor;
}

}  // namespace train_gpt
