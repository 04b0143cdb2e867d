// From any checkpoint to any sink, exactly and in bounded memory.
//
// What: PlanConversion says what a conversion will write and lose, and proves
//   that nothing else is lost; Convert does it. Values keep every bit unless
//   the sink asks for another dtype: widening is exact, narrowing rounds to
//   nearest even.
// Ownership: source and sink belong to the caller.
// Threads: Convert runs `jobs` threads, each on a file of its own; it is called
//   on one thread.
// Failures: Error. kUnsupported: a loss that is not allowed, a conversion
//   between dtypes that has no meaning. kResourceExhausted: not enough space
//   for the target, or too little memory allowed. What reading the source or
//   writing throws. After an error, or an exception of a callback, destroying
//   the sink removes what was written.

#ifndef MUONSTORE_CONVERT_H_
#define MUONSTORE_CONVERT_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/file_system.h"

namespace muonstore {

// What `SinkLoss::kind` is for elements that the source itself lacks: they are
// zeros in the target.
inline constexpr const char* kMissingLoss = "missing";

// For finite values that a narrower dtype cannot hold: they become infinite.
// Only the values show it, so it is in no plan.
inline constexpr const char* kOverflowLoss = "overflow";

// For a weight that is not round(master) where the target, as ZeRO-3, holds no
// weight of its own. Only the values show it, too.
inline constexpr const char* kWeightsLoss = "weights_differ";

// A weight that the source stores and the target has as round(master) alone.
// Indices into the source's tensors().
struct ImpliedWeight {
  size_t weight = 0;
  size_t master = 0;
};

struct ConversionPlan {
  std::string path;                  // Of the target.
  std::vector<uint64_t> file_bytes;  // Payload, by file.
  uint64_t payload_bytes = 0;        // Of all files.
  std::vector<SinkLoss> losses;      // The sink's, and kMissingLoss.
  std::vector<std::string> notes;
  std::vector<ImpliedWeight> implied_weights;

  // The losses that were not chosen and whose kind is not among `kinds`.
  std::vector<SinkLoss> Refused(const std::vector<std::string>& kinds) const;
};

// Error(kInternal) where the sink's pieces overlap, lie outside, or leave out
// elements that are no loss.
ConversionPlan PlanConversion(const Checkpoint& source,
                              const CheckpointSink& sink);

// Bytes of free space that the target needs: its payload, and room for headers.
uint64_t NeededBytes(const ConversionPlan& plan);
// Error(kResourceExhausted) where there are fewer at the target.
void RequireSpace(FileSystem& fs, const ConversionPlan& plan);

struct ConvertOptions {
  // Of all buffers together; hard. The tables of source and target come on top.
  uint64_t memory_limit_bytes = uint64_t{1} << 30;
  int32_t jobs = 1;
  // Kinds of loss that are accepted; see SinkLoss.
  std::vector<std::string> allowed_losses = {};
  // Told about bytes written so far and in all, one call at a time; may throw
  // to stop. May be empty.
  std::function<void(uint64_t done_bytes, uint64_t total_bytes)> progress = {};
  // Called when all is written and nothing is visible yet, with the losses that
  // only the values showed; may throw to stop.
  std::function<void(std::span<const SinkLoss> found)> before_commit = {};
  // Asked for the free space at the target before anything is written; null:
  // not asked.
  std::shared_ptr<FileSystem> fs = nullptr;
};

// The losses that only values show (kOverflowLoss, kWeightsLoss), one a tensor
// and kind: reads all that may be lost that way and writes nothing.
std::vector<SinkLoss> FindValueLosses(const Checkpoint& source,
                                      const CheckpointSink& sink,
                                      const ConversionPlan& plan,
                                      const ConvertOptions& options);

// Runs the plan, finishes the sink and commits it. Returns the losses that only
// the values showed, with leave; without, the first of them is an error.
std::vector<SinkLoss> Convert(const Checkpoint& source, CheckpointSink& sink,
                              const ConversionPlan& plan,
                              const ConvertOptions& options);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERT_H_
