#include "converters/job_shares.h"

#include <algorithm>

#include "converters/implied_weights.h"
#include "converters/segment_reader.h"
#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Larger blocks gain nothing.
constexpr uint64_t kMaxBlockBytes = 8 << 20;
// Smaller shares than this make every read and write a small one.
constexpr uint64_t kMinBytesOfJob = 1 << 20;
// Jobs beyond one need more: each may have blocks of native files in hand,
// on both sides of a comparison.
constexpr uint64_t kMinBytesOfNextJob = 24 << 20;
// What a job may hold for each byte of its block: the block, the one that is
// read ahead, the reader's scratch, in vectors that may have grown to twice its
// size, a fingerprint's widened copy, and weights beside their masters.
constexpr uint64_t kBytesPerBlockByte = 2 + 2 * SegmentReader::kScratchPerByte +
                                        4 + ImpliedWeights::kScratchPerByte;
// Of a job's memory, what the file that it writes may hold back.
constexpr uint64_t kFilesPart = 4;
constexpr uint64_t kMaxFileBytes = 64 << 20;

}  // namespace

int32_t JobsWithin(uint64_t memory_limit_bytes, int32_t jobs) {
  const uint64_t fitting = std::clamp<uint64_t>(
      memory_limit_bytes / kMinBytesOfNextJob, 1, uint64_t{1} << 16);
  return std::clamp<int32_t>(jobs, 1, static_cast<int32_t>(fitting));
}

JobShares DivideMemory(const ConvertOptions& options, size_t num_files) {
  const uint64_t limit = options.memory_limit_bytes;
  if (limit < kMinBytesOfJob) {
    throw Error(ErrorCode::kInvalidArgument,
                "the memory limit is too small to work in",
                {.expected = StrCat("at least ", kMinBytesOfJob, " bytes"),
                 .found = StrCat(limit)});
  }
  const int32_t jobs = JobsWithin(limit, options.jobs);
  const uint64_t share = limit / static_cast<uint64_t>(jobs);
  const uint64_t file_bytes = std::min(kMaxFileBytes, share / kFilesPart);
  const uint64_t block =
      std::min(kMaxBlockBytes, (share - file_bytes) / kBytesPerBlockByte);
  // Threads that have no file of their own help with those of others.
  const auto files_at_once = static_cast<int32_t>(
      std::clamp<size_t>(num_files, 1, static_cast<size_t>(jobs)));
  // Whole pages, hence whole elements of any dtype.
  return {jobs,
          static_cast<size_t>(block - block % kIoBlockBytes),
          {.buffer_bytes = file_bytes, .num_threads = jobs / files_at_once}};
}

}  // namespace muonstore
