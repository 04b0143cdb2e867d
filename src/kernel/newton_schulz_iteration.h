// Newton-Schulz on one matrix whose norm is known.
//
// What: loads X = scale * G, transposed where the plan says so, iterates, and
//   writes the result to the matrix's place.
// Ownership: `work` is memory of the caller, sized by the plan, that nothing
//   else uses meanwhile.
// Threads: the team's. Failures: see gemm.h.

#ifndef MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_ITERATION_H_
#define MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_ITERATION_H_

#include <cstddef>
#include <functional>
#include <vector>

#include "muonstore/newton_schulz.h"
#include "src/kernel/gemm.h"
#include "src/kernel/matrix_passes.h"
#include "src/kernel/newton_schulz_plan.h"
#include "src/kernel/team.h"

namespace muonstore {

struct NewtonSchulzWork {
  NewtonSchulzBuffers buffers;
  // Memory of ScratchBytes for each worker of the team.
  std::function<std::byte*(int worker)> scratch;
};

// One matrix: where it comes from, where it goes.
struct NewtonSchulzMatrix {
  Block<const float> in;
  Block<float> out;
  double scale = 1;  // Brings `in` to norm one.
};

// A step's coefficients as the products use them.
struct FloatStep {
  float a;
  float b;
  float c;
};

inline FloatStep Rounded(const QuinticStep& step) {
  return {static_cast<float>(step.a), static_cast<float>(step.b),
          static_cast<float>(step.c)};
}

// What an iteration works on, and with.
struct NewtonSchulzParts {
  const NewtonSchulzPlan& plan;
  const NewtonSchulzMatrix& matrix;
  const NewtonSchulzWork& work;
  const Gemm& gemm;
  Team& team;
};

// For plans without and with `bf16`.
void RunF32NewtonSchulz(const NewtonSchulzParts& parts,
                        const std::vector<QuinticStep>& steps);
void RunBF16NewtonSchulz(const NewtonSchulzParts& parts,
                         const std::vector<QuinticStep>& steps);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_ITERATION_H_
