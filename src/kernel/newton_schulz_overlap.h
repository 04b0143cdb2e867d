// Do the outputs of a call stay out of each other's way, and of inputs?
//
// What: an output that overlaps another output, or an input that is not the
//   very same view, would be read and written by several threads at once.
// Memory: two words a row that does not follow the one before it without a gap.
// Threads, failures: a pure function; Error(kInvalidArgument).

#ifndef MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_OVERLAP_H_
#define MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_OVERLAP_H_

#include <span>

#include "muonstore/newton_schulz.h"

namespace muonstore {

// The views have been checked one by one.
void RefuseOverlaps(std::span<const OrthogonalizeJob> jobs);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_NEWTON_SCHULZ_OVERLAP_H_
