// Training without LibTorch: weights and gradients are spans of floats.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "muonstore/executor.h"
#include "muonstore/store.h"

namespace {

std::vector<muonstore::ParameterSpec> Specs() {
  return {{.name = "up.weight",
           .shape = muonstore::Shape({8, 4}),
           .weight_dtype = muonstore::DType::kF32,
           .group = 0,
           .optimizer = muonstore::Optimizer::kMuon},
          {.name = "up.bias",
           .shape = muonstore::Shape({8}),
           .weight_dtype = muonstore::DType::kF32,
           .group = 1,
           .optimizer = muonstore::Optimizer::kAdam}};
}

// The model is the sum of (weight - 1)^2 / 2, whose gradient is weight - 1.
double LossAndGradient(std::span<const float> weight,
                       std::vector<float>& gradient) {
  double loss = 0;
  gradient.clear();
  for (const float value : weight) {
    gradient.push_back(value - 1);
    loss += (value - 1) * (value - 1) / 2;
  }
  return loss;
}

void Train() {
  const auto specs = Specs();
  const auto cut =
      muonstore::Partitioning::Build(specs, {.stage = 2, .num_ranks = 1});
  muonstore::StateStore store(specs, cut, muonstore::StoreOptions{});
  for (const muonstore::ParameterSpec& spec : specs) {
    std::vector<float> start;  // Row-major, any values.
    for (int64_t i = 0; i < spec.shape.num_elements(); ++i) {
      start.push_back(0.01F * static_cast<float>(i));
    }
    store.Set(spec.name, "master", start);
  }
  muonstore::OffloadExecutor executor(store,
                                      {.groups = {{.lr = 0.05}, {.lr = 0.05}}});

  for (int step = 1; step <= 40; ++step) {
    double loss = 0;
    for (const muonstore::ParameterSpec& spec : specs) {
      const auto weight = store.Gather(spec.name, "weight");
      std::vector<float> gradient;
      loss += LossAndGradient(weight.f32(), gradient);
      executor.Accumulate(spec.name,
                          {.data = std::as_bytes(std::span(gradient))});
    }
    executor.Step();
    if (step == 1 || step % 10 == 0) std::printf("%3d  %.4f\n", step, loss);
  }
}

}  // namespace

int main() {
  try {
    Train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
