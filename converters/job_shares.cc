#include "converters/job_shares.h"

#include <algorithm>

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
// What a job may hold for each byte of its block: the block, the one that is
// read ahead, the reader's scratch, in vectors that may have grown to twice its
// size, and a fingerprint's widened copy.
constexpr uint64_t kBytesPerBlockByte =
    2 + 2 * SegmentReader::kScratchPerByte + 4;
// Of a job's memory, what the file that it writes may hold back.
constexpr uint64_t kFilesPart = 4;
constexpr uint64_t kMaxFileBytes = 64 << 20;

}  // namespace

JobShares DivideMemory(const ConvertOptions& options, size_t num_files) {
  const uint64_t limit = options.memory_limit_bytes;
  if (limit < kMinBytesOfJob) {
    throw Error(ErrorCode::kInvalidArgument,
                "the memory limit is too small to work in",
                {.expected = StrCat("at least ", kMinBytesOfJob, " bytes"),
                 .found = StrCat(limit)});
  }
  const uint64_t fitting =
      std::min<uint64_t>(limit / kMinBytesOfJob, uint64_t{1} << 16);
  const int32_t jobs =
      std::clamp<int32_t>(options.jobs, 1, static_cast<int32_t>(fitting));
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
