#include "src/kernel/newton_schulz_cost.h"

#include <algorithm>

namespace muonstore {
namespace {

// f32 operations in the time of a byte: 140 GFLOP/s and 10 GB/s a core.
constexpr double kFlopsAByte = 14;

// Of the input, twice, once for its norm; of the result; of X, once in f32.
constexpr double kBytesToLoadAndStore = 16;
// A standard step reads X for the Gram matrix and for its product, and writes.
constexpr double kBytesAnF32Step = 12;
// The same with bf16 operands and both halves of X, and without the lower ones.
constexpr double kBytesASplitStep = 12;
constexpr double kBytesARoundedStep = 6;
// X is read for the Gram matrix and for the last product.
constexpr double kBytesOfGram = 8;

}  // namespace

NewtonSchulzCounts WorkOf(const NewtonSchulzPlan& plan, size_t num_steps) {
  const auto n = static_cast<double>(plan.n);
  const auto m = static_cast<double>(plan.bf16 ? plan.x_panels.cols : plan.m);
  const auto steps = static_cast<double>(num_steps);
  const double symmetric = 2 * TriangleSize(plan);  // For each inner element.
  const double panels = 2 * n * n * m;
  NewtonSchulzCounts work;
  if (plan.gram) {
    const double whole =
        static_cast<double>(std::min(kNumWholeProducts, num_steps - 1));
    work.f32_flops = symmetric * m + (4 * steps - 3 - whole) * symmetric * n +
                     whole * 2 * n * n * n + panels;
    work.bytes = (kBytesToLoadAndStore + kBytesOfGram) * n * m;
    return work;
  }
  const double flops = steps * (symmetric * m + symmetric * n + panels);
  if (!plan.bf16) {
    work.f32_flops = flops;
    work.bytes = (kBytesToLoadAndStore + steps * kBytesAnF32Step) * n * m;
    return work;
  }
  const double rounded = std::min(steps, static_cast<double>(kNumRoundedSteps));
  work.bf16_flops = flops;
  work.bytes = (kBytesToLoadAndStore + (steps - rounded) * kBytesASplitStep +
                rounded * kBytesARoundedStep) *
               n * m;
  return work;
}

double CostOf(const NewtonSchulzCounts& work, double bf16_rate) {
  const double bf16 = work.bf16_flops > 0 ? work.bf16_flops / bf16_rate : 0;
  return work.f32_flops + bf16 + kFlopsAByte * work.bytes;
}

}  // namespace muonstore
