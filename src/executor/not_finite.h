// Which matrix stopped an orthogonalization.
//
// What: kernels know jobs by number; people know parameters by name.
// Ownership, threads, failures: pure functions over memory of the caller.

#ifndef MUONSTORE_SRC_EXECUTOR_NOT_FINITE_H_
#define MUONSTORE_SRC_EXECUTOR_NOT_FINITE_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "muonstore/newton_schulz.h"

namespace muonstore {

// The first matrix, counted through all jobs, with an element that is not
// finite.
std::optional<size_t> FirstNotFinite(std::span<const OrthogonalizeJob> jobs);

// Error(kInvalidArgument): the update of this parameter is not finite although
// all gradients are, so that its momentum is not.
[[noreturn]] void ThrowNotFiniteMomentum(const std::string& parameter);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_NOT_FINITE_H_
