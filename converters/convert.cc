// How a conversion runs.
//
// 1. What would be lost without leave, and too little space or memory, are
//    errors before anything is written.
// 2. `jobs` threads take the files in order. Each fills a file's segments from
//    front to back, in blocks that fit its part of the memory limit, and closes
//    the file, which makes it durable.
// 3. The first failure stops every thread at its next block or file.
// 4. When all files are closed, the sink finishes; `before_commit` may look at
//    what was written. If neither that nor `progress` objects, the sink
//    commits; nothing is visible before.
//
// Not promised: that damage of the source is found where its format's checksums
// span more than a block; verify says that.
#include "muonstore/convert.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "converters/segment_reader.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/inspect/parallel.h"

namespace muonstore {
namespace {

// Larger blocks gain nothing.
constexpr uint64_t kMaxBlockBytes = 8 << 20;
// Smaller shares than this make every read and write a small one.
constexpr uint64_t kMinBytesOfJob = 1 << 20;
// What a job may hold for each byte of its block: the block and the reader's
// scratch, each in a vector that may have grown to twice its size, and a
// fingerprint's widened copy.
constexpr uint64_t kBytesPerBlockByte =
    2 + 2 * SegmentReader::kScratchPerByte + 4;
// For headers, directories and whole file-system blocks.
constexpr uint64_t kOverheadBytesOfFile = 64 << 10;

// How many threads, and how large a block each may use.
struct Shares {
  int32_t jobs;
  size_t block_bytes;
};

Shares Divide(const ConvertOptions& options) {
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
  const uint64_t block = std::min(
      kMaxBlockBytes, limit / static_cast<uint64_t>(jobs) / kBytesPerBlockByte);
  // Whole elements of any dtype.
  return {jobs, static_cast<size_t>(block - block % 16)};
}

void RefuseLosses(const ConversionPlan& plan, const ConvertOptions& options) {
  const std::vector<SinkLoss> refused = plan.Refused(options.allowed_losses);
  if (refused.empty()) return;
  std::vector<std::string> messages;
  std::vector<std::string> kinds;
  for (const SinkLoss& loss : refused) {
    messages.push_back(loss.message);
    if (std::find(kinds.begin(), kinds.end(), loss.kind) == kinds.end()) {
      kinds.push_back(loss.kind);
    }
  }
  std::string allow;
  for (const std::string& kind : kinds) {
    allow += (allow.empty() ? "" : ",") + kind;
  }
  throw Error(ErrorCode::kUnsupported,
              StrCat("state would be lost: ", JoinNames(messages, 5),
                     "; --allow-loss ", allow, " accepts that"),
              {.file = plan.path});
}

// The nearest directory on the way up that exists.
std::string ExistingParent(FileSystem& fs, std::string path) {
  while (!fs.Stat(path)) {
    const std::string parent =
        std::filesystem::path(path).parent_path().string();
    if (parent.empty()) return ".";
    if (parent == path) break;
    path = parent;
  }
  return path;
}

class Conversion {
 public:
  Conversion(const Checkpoint& source, CheckpointSink& sink,
             const ConversionPlan& plan, const ConvertOptions& options)
      : source_(source),
        sink_(sink),
        num_files_(plan.file_bytes.size()),
        shares_(Divide(options)),
        progress_(options.progress, plan.payload_bytes) {}

  void Run() {
    ParallelFor(num_files_, shares_.jobs, [this](size_t file) {
      if (failed_.load()) return;
      try {
        WriteFile(file);
      } catch (...) {
        Fail(std::current_exception());
      }
    });
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void Fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_.store(true);
  }

  void WriteFile(size_t index) {
    progress_.Add(0);  // A file may have no bytes to be told about.
    const std::unique_ptr<SinkFile> file = sink_.CreateFile(index);
    SegmentReader reader(source_);
    std::vector<std::byte> block;
    for (size_t i = 0; i < file->segments().size(); ++i) {
      const SinkSegment& segment = file->segments()[i];
      const int64_t item = SizeBytes(segment.dtype);
      const int64_t step = static_cast<int64_t>(shares_.block_bytes) / item;
      for (int64_t at = 0; at < segment.num_elements; at += step) {
        if (failed_.load()) return;  // Unfinished: it is not committed.
        const int64_t count = std::min(step, segment.num_elements - at);
        block.resize(static_cast<size_t>(count * item));
        reader.Read(segment, at, block);
        file->Append(i, block);
        progress_.Add(block.size());
      }
    }
    file->Close();
  }

  const Checkpoint& source_;
  CheckpointSink& sink_;
  size_t num_files_;
  Shares shares_;
  ByteProgress progress_;
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
};

}  // namespace

uint64_t NeededBytes(const ConversionPlan& plan) {
  return plan.payload_bytes + plan.file_bytes.size() * kOverheadBytesOfFile;
}

void RequireSpace(FileSystem& fs, const ConversionPlan& plan) {
  const uint64_t needed = NeededBytes(plan);
  const uint64_t available = fs.AvailableBytes(ExistingParent(fs, plan.path));
  if (available < needed) {
    throw Error(ErrorCode::kResourceExhausted,
                "not enough space for the target; nothing was written",
                {.file = plan.path,
                 .expected = StrCat(needed, " bytes"),
                 .found = StrCat(available, " bytes")});
  }
}

void Convert(const Checkpoint& source, CheckpointSink& sink,
             const ConversionPlan& plan, const ConvertOptions& options) {
  RefuseLosses(plan, options);
  if (options.fs != nullptr) RequireSpace(*options.fs, plan);
  Conversion(source, sink, plan, options).Run();
  sink.Finish();
  if (options.before_commit) options.before_commit();
  // All of that takes time: the last moment to stop.
  if (options.progress) {
    options.progress(plan.payload_bytes, plan.payload_bytes);
  }
  sink.Commit();
}

}  // namespace muonstore
