// What Newton-Schulz is given: checks, norms, and one entry a matrix.
//
// Ownership: views of the jobs' memory.
// Threads: norms run on the pool. Failures: see newton_schulz.h.

#ifndef MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_INPUT_H_
#define MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_INPUT_H_

#include <span>
#include <vector>

#include "muonstore/newton_schulz.h"
#include "src/kernel/newton_schulz_iteration.h"

namespace muonstore {

void CheckOptions(const NewtonSchulzOptions& options);

// The matrices of all jobs that have work to do, with their scales, after every
// one of them was found finite. Zero matrices are written at once.
std::vector<NewtonSchulzMatrix> NormalizedMatrices(
    const NewtonSchulzOptions& options, std::span<const OrthogonalizeJob> jobs,
    ThreadPool& pool);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_INPUT_H_
