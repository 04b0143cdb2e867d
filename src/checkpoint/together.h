// Work of very different length on each rank, while all of them watch each
// other.
//
// What: each rank runs its part on a thread of its own; meanwhile the ranks
//   meet ten times a second, so that a dead or hanging process is noticed
//   within the communicator's timeout, but a slow disk is not mistaken for one.
//   When a part fails, the others are told to stop.
// Threads: collective; the part runs on another thread than the caller's.
// Failures: SharedError of the parts, after all have ended; throws
//   Error(kUnavailable) where the communicator breaks, after its own part has
//   ended.

#ifndef MUONSTORE_SRC_CHECKPOINT_TOGETHER_H_
#define MUONSTORE_SRC_CHECKPOINT_TOGETHER_H_

#include <atomic>
#include <functional>
#include <optional>

#include "muonstore/communicator.h"
#include "muonstore/error.h"

namespace muonstore {

// Set: the part should stop as soon as it can, by an error.
using StopFlag = std::atomic<bool>;

std::optional<Error> RunTogether(
    Communicator& ranks, const std::function<void(const StopFlag&)>& part);

// Throws where the flag is set.
void ThrowIfStopped(const StopFlag& stop);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_CHECKPOINT_TOGETHER_H_
