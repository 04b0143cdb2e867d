#include "examples/train_gpt/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

namespace train_gpt {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.95;
constexpr double kEps = 1e-8;

// a, b, c of five quintic steps.
using Steps = std::array<std::array<double, 3>, 5>;

// microsoft/dion's, with the norm times 1.02.
constexpr Steps kPolarExpress = {
    {{8.156554524902461, -22.48329292557795, 15.878769915207462},
     {4.042929935166739, -2.808917465908714, 0.5000178451051316},
     {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
     {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
     {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}}};

Steps StepsOf(Coefficients coefficients) {
  if (coefficients == Coefficients::kPolarExpress5) return kPolarExpress;
  Steps steps;
  steps.fill({3.4445, -4.7750, 2.0315});
  return steps;
}

// Newton-Schulz, all in f32.
at::Tensor Orthogonalize(const at::Tensor& matrix, Coefficients coefficients) {
  const bool tall = matrix.size(0) > matrix.size(1);
  const bool polar = coefficients == Coefficients::kPolarExpress5;
  at::Tensor x = tall ? matrix.t() : matrix;
  x = x / (x.norm().clamp_min(1e-7) * (polar ? 1.02 : 1.0));
  for (const auto& [a, b, c] : StepsOf(coefficients)) {
    const at::Tensor gram = x.mm(x.t());
    const at::Tensor polynomial = b * gram + c * gram.mm(gram);
    x = a * x + polynomial.mm(x);
  }
  return tall ? x.t() : x;
}

double ShapeScale(bool match_rms, double rows, double cols) {
  return match_rms ? 0.2 * std::sqrt(std::max(rows, cols))
                   : std::sqrt(std::max(1.0, rows / cols));
}

double GlobalNorm(const std::vector<at::Tensor>& tensors) {
  double sum = 0;
  for (const at::Tensor& tensor : tensors) {
    sum += tensor.to(at::kDouble).square().sum().item<double>();
  }
  return std::sqrt(sum);
}

}  // namespace

Reference::Reference(const OptimizerFlags& flags, int64_t num_heads,
                     std::vector<NamedTensor> masters)
    : flags_(flags), num_heads_(num_heads), masters_(std::move(masters)) {
  for (const NamedTensor& master : masters_) {
    states_.push_back(
        {at::zeros_like(master.tensor), at::zeros_like(master.tensor)});
  }
}

double Reference::Step(const std::vector<at::Tensor>& gradients) {
  ++num_steps_;
  const double norm = GlobalNorm(gradients);
  const bool clip = flags_.max_norm > 0 && norm > flags_.max_norm;
  const auto factor =
      static_cast<float>(clip ? flags_.max_norm / (norm + 1e-6) : 1.0);
  for (size_t i = 0; i < masters_.size(); ++i) {
    const at::Tensor gradient = gradients[i] * factor;
    if (TakesMuon(masters_[i])) {
      MuonStep(masters_[i], states_[i], gradient);
    } else {
      AdamStep(masters_[i], states_[i], gradient);
    }
  }
  return norm;
}

void Reference::MuonStep(const NamedTensor& master, State& state,
                         const at::Tensor& gradient) const {
  at::Tensor& momentum = state.first;
  const double mu = flags_.momentum;
  at::Tensor direction;
  if (flags_.accumulate) {
    momentum.mul_(mu).add_(gradient);
    direction = flags_.nesterov ? gradient + mu * momentum : momentum;
  } else {
    momentum.lerp_(gradient, 1 - mu);
    direction = flags_.nesterov ? gradient.lerp(momentum, mu) : momentum;
  }
  const int64_t rows = RowsOfMatrix(master);
  at::Tensor weight = master.tensor;
  weight.mul_(1 - flags_.muon_lr * flags_.weight_decay);
  for (int64_t row = 0; row < weight.size(0); row += rows) {
    const double scale = ShapeScale(flags_.match_rms, static_cast<double>(rows),
                                    static_cast<double>(weight.size(1)));
    weight.narrow(0, row, rows)
        .sub_(
            Orthogonalize(direction.narrow(0, row, rows), flags_.coefficients),
            flags_.muon_lr * scale);
  }
}

void Reference::AdamStep(const NamedTensor& master, State& state,
                         const at::Tensor& gradient) const {
  const auto step = static_cast<double>(num_steps_);
  at::Tensor weight = master.tensor;
  weight.mul_(1 - flags_.adam_lr * flags_.weight_decay);
  state.first.lerp_(gradient, 1 - kBeta1);
  state.second.mul_(kBeta2).addcmul_(gradient, gradient, 1 - kBeta2);
  const at::Tensor denominator =
      state.second.sqrt() / std::sqrt(1 - std::pow(kBeta2, step)) + kEps;
  weight.addcdiv_(state.first, denominator,
                  -flags_.adam_lr / (1 - std::pow(kBeta1, step)));
}

int64_t Reference::RowsOfMatrix(const NamedTensor& master) const {
  const int64_t rows = master.tensor.size(0);
  if (!master.name.ends_with("qkv.weight")) return rows;
  if (flags_.qkv == QkvLayout::kWhole) return rows;
  return flags_.qkv == QkvLayout::kPacked ? rows / 3 : rows / (3 * num_heads_);
}

}  // namespace train_gpt
