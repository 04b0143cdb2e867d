// The cost model against what products are really called for.
#include "src/kernel/newton_schulz_cost.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "src/kernel/aligned_buffer.h"
#include "src/kernel/newton_schulz_iteration.h"
#include "tests/kernel/matrices.h"

namespace muonstore {
namespace {

constexpr double kAmx = 7;
constexpr double kAvx512BF16 = 2;

// Counts the operations of each product and hands it on.
class CountingGemm : public Gemm {
 public:
  std::string name() const override { return gemm_->name(); }
  double bf16_rate() const override { return gemm_->bf16_rate(); }
  void Multiply(const GemmCall& call) const override {
    f32_flops_ += 2 * call.m * call.n * call.k;
    gemm_->Multiply(call);
  }
  void Multiply(const PackedGemmCall& call) const override {
    bf16_flops_ += 2 * call.m * call.n * call.k;
    gemm_->Multiply(call);
  }

  double f32_flops() const { return static_cast<double>(f32_flops_); }
  double bf16_flops() const { return static_cast<double>(bf16_flops_); }

 private:
  std::unique_ptr<Gemm> gemm_ = MakeGemm();
  mutable std::atomic<int64_t> f32_flops_ = 0;
  mutable std::atomic<int64_t> bf16_flops_ = 0;
};

void RunPlan(const NewtonSchulzPlan& plan, const NewtonSchulzOptions& options,
             int64_t rows, int64_t cols, const Gemm& gemm) {
  FloatMatrix matrix = Gaussian(rows, cols, 71);
  AlignedBuffer shared;
  AlignedBuffer scratch;
  shared.Reserve(SharedBytes(plan));
  scratch.Reserve(ScratchBytes(plan));
  const NewtonSchulzMatrix in_place = {
      .in = {matrix.values.data(), cols, rows, cols},
      .out = {matrix.values.data(), cols, rows, cols},
      .scale = 0.01};
  const NewtonSchulzWork work = {
      .buffers = CarveBuffers(plan, shared.data()),
      .scratch = [&](int /*worker*/) { return scratch.data(); }};
  Team team = Team::Alone(0);
  const auto run = plan.bf16 ? RunBF16NewtonSchulz : RunF32NewtonSchulz;
  run({plan, in_place, work, gemm, team}, options.coefficients.steps);
}

std::vector<std::pair<int64_t, int64_t>> CostShapes() {
  return {{1, 5},     {20, 90},   {64, 64},   {100, 130},
          {130, 100}, {128, 700}, {300, 310}, {560, 600}};
}

TEST(NewtonSchulzCost, CountsEveryOperationOfEveryPath) {
  for (NewtonSchulzOptions options : AllPaths()) {
    for (const auto& [rows, cols] : CostShapes()) {
      const CountingGemm gemm;
      const NewtonSchulzPlan plan =
          MakePlan(options, rows, cols, gemm.bf16_rate());
      RunPlan(plan, options, rows, cols, gemm);
      const NewtonSchulzCounts work =
          WorkOf(plan, options.coefficients.steps.size());
      EXPECT_EQ(gemm.f32_flops(), work.f32_flops)
          << Describe(options) << " " << rows << " x " << cols;
      EXPECT_EQ(gemm.bf16_flops(), work.bf16_flops)
          << Describe(options) << " " << rows << " x " << cols;
    }
  }
}

TEST(NewtonSchulzCost, CountsAnyNumberOfSteps) {
  for (NewtonSchulzOptions options : AllPaths()) {
    for (size_t num_steps = 1; num_steps <= 4; ++num_steps) {
      options.coefficients.steps.resize(num_steps);
      const CountingGemm gemm;
      const NewtonSchulzPlan plan =
          MakePlan(options, 96, 160, gemm.bf16_rate());
      RunPlan(plan, options, 96, 160, gemm);
      const NewtonSchulzCounts work = WorkOf(plan, num_steps);
      EXPECT_EQ(gemm.f32_flops() + gemm.bf16_flops(),
                work.f32_flops + work.bf16_flops)
          << Describe(options) << " " << num_steps;
    }
  }
}

NewtonSchulzOptions Options(NewtonSchulzPrecision precision,
                            NewtonSchulzForm form) {
  NewtonSchulzOptions options;
  options.precision = precision;
  options.form = form;
  return options;
}

double CostOfForced(NewtonSchulzPrecision precision, NewtonSchulzForm form,
                    std::pair<int64_t, int64_t> shape, double bf16_rate) {
  const auto [rows, cols] = shape;
  return CostOf(
      WorkOf(MakePlan(Options(precision, form), rows, cols, bf16_rate), 5),
      bf16_rate);
}

// The cheapest of what may run, over shapes from square to very wide.
TEST(NewtonSchulzCost, AutoTakesTheCheapestForm) {
  using enum NewtonSchulzForm;
  using enum NewtonSchulzPrecision;
  for (const int64_t n : {48, 128, 300, 768}) {
    for (int64_t m = n; m < 40 * n; m += n / 3) {
      for (const double rate : {kAmx, kAvx512BF16}) {
        const auto cost = [&](NewtonSchulzPrecision precision,
                              NewtonSchulzForm form) {
          return CostOfForced(precision, form, {n, m}, rate);
        };
        const double gram = m > n ? cost(kF32, kGram) : 1e300;
        EXPECT_EQ(cost(kF32, kAuto), std::min(cost(kF32, kStandard), gram));
        EXPECT_EQ(cost(kBF16, kAuto), std::min(cost(kBF16, kStandard), gram));
      }
    }
  }
}

// What was measured (docs/performance.md), with room to the limits.
TEST(NewtonSchulzCost, ChoosesAsMeasured) {
  const auto choose = [](int64_t rows, int64_t cols, double rate) {
    const NewtonSchulzPlan plan =
        MakePlan(Options(NewtonSchulzPrecision::kBF16, NewtonSchulzForm::kAuto),
                 rows, cols, rate);
    return std::string(plan.gram ? "gram " : "standard ") +
           (plan.bf16 ? "bf16" : "f32");
  };
  EXPECT_EQ(choose(1024, 4096, kAmx), "standard bf16");
  EXPECT_EQ(choose(4096, 1024, kAmx), "standard bf16");
  EXPECT_EQ(choose(2048, 2048, kAmx), "standard bf16");
  EXPECT_EQ(choose(128, 4096, kAmx), "gram f32");
  EXPECT_EQ(choose(2048, 2048, kAvx512BF16), "standard bf16");
  EXPECT_EQ(choose(768, 3072, kAvx512BF16), "gram f32");
  EXPECT_EQ(choose(2048, 2048, 0), "standard f32");
  EXPECT_EQ(choose(1024, 4096, 0), "gram f32");
}

}  // namespace
}  // namespace muonstore
