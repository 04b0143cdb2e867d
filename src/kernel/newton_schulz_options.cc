// The published coefficient sets and what follows from the options alone.
#include <algorithm>

#include "muonstore/error.h"
#include "muonstore/newton_schulz.h"
#include "src/base/str.h"
#include "src/kernel/gemm.h"
#include "src/kernel/newton_schulz_cost.h"
#include "src/kernel/newton_schulz_input.h"
#include "src/kernel/newton_schulz_plan.h"

namespace muonstore {
namespace {

// What AMX does.
constexpr double kNominalBF16Rate = 7;

NewtonSchulzPlan CheckedPlan(const NewtonSchulzOptions& options, int64_t rows,
                             int64_t cols, double bf16_rate) {
  CheckOptions(options);
  if (rows < 0 || cols < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "a matrix has a side of negative length",
                {.found = StrCat(rows, " x ", cols)});
  }
  return MakePlan(options, rows, cols, bf16_rate);
}

}  // namespace

NewtonSchulzCoefficients NewtonSchulzCoefficients::Jordan5() {
  return {.name = "jordan5",
          .steps = std::vector<QuinticStep>(5, {3.4445, -4.7750, 2.0315})};
}

NewtonSchulzCoefficients NewtonSchulzCoefficients::PolarExpress5() {
  return {
      .name = "polar_express5",
      .steps = {{8.156554524902461, -22.48329292557795, 15.878769915207462},
                {4.042929935166739, -2.808917465908714, 0.5000178451051316},
                {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
                {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
                {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}},
      .norm_factor = 1.02};
}

NewtonSchulzForm ChooseForm(const NewtonSchulzOptions& options, int64_t rows,
                            int64_t cols) {
  const double bf16_rate = MakeGemm()->bf16_rate();
  return CheckedPlan(options, rows, cols, bf16_rate).gram
             ? NewtonSchulzForm::kGram
             : NewtonSchulzForm::kStandard;
}

double OrthogonalizeFlops(const NewtonSchulzOptions& options, int64_t rows,
                          int64_t cols) {
  const NewtonSchulzCounts work =
      WorkOf(CheckedPlan(options, rows, cols, kNominalBF16Rate),
             options.coefficients.steps.size());
  return work.f32_flops + work.bf16_flops;
}

std::string MatrixProductName() {
  const std::unique_ptr<Gemm> gemm = MakeGemm();
  return gemm->bf16_rate() > 0
             ? gemm->name()
             : StrCat(gemm->name(), " (bf16 class runs in f32)");
}

}  // namespace muonstore
