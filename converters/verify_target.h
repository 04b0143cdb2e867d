// Does a target hold what its source does?
//
// What: opens what was written, before it is visible, and compares it with the
//   source, element by element. What the plan lists as lost is left out.
// Threads: `jobs` threads.
// Failures: what reading throws; a difference is Error(kDataLoss) that names
//   the tensor.

#ifndef MUONSTORE_CONVERTERS_VERIFY_TARGET_H_
#define MUONSTORE_CONVERTERS_VERIFY_TARGET_H_

#include <cstdint>
#include <functional>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/convert.h"

namespace muonstore {

struct VerifyTargetOptions {
  int32_t jobs = 1;
  // May throw to stop.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
};

// `sink` has been finished; it says what was written where.
void VerifyTarget(const Checkpoint& source, const CheckpointSink& sink,
                  const ConversionPlan& plan,
                  const VerifyTargetOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_VERIFY_TARGET_H_
