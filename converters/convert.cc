// How a conversion runs.
//
// 1. What would be lost without leave, and too little space or memory, are
//    errors before anything is written.
// 2. `jobs` threads take the files in order. Each fills a file's segments from
//    front to back, in blocks that fit its part of the memory limit, and closes
//    the file, which makes it durable.
// 3. The first failure stops every thread at its next block or file. From the
//    first value on that would be lost without leave, nothing more is written,
//    but what may be lost is read to the end: the error tells all of it.
// 4. When all files are closed, the sink finishes; `before_commit` may look at
//    what was written. If neither that nor `progress` objects, the sink
//    commits; nothing is visible before.
//
// Damage of the source is found where its format's checksums cover what was
// read. Not promised: that of records and blocks of which large parts are never
// read (replicas of another rank's momentum), and of formats without checksums;
// verify says that.
#include "muonstore/convert.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "converters/block_source.h"
#include "converters/element_converter.h"
#include "converters/implied_weights.h"
#include "converters/job_shares.h"
#include "converters/value_losses.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/inspect/parallel.h"

namespace muonstore {
namespace {

// For headers, directories and whole file-system blocks.
constexpr uint64_t kOverheadBytesOfFile = 64 << 10;

void Refuse(const ConversionPlan& plan, const std::vector<SinkLoss>& refused) {
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
  Conversion(const Checkpoint& source, const ConversionPlan& plan,
             const ConvertOptions& options)
      : source_(source),
        plan_(plan),
        options_(options),
        num_files_(plan.file_bytes.size()),
        shares_(DivideMemory(options, num_files_)),
        progress_(options.progress, plan.payload_bytes),
        implied_weights_(source, plan),
        losses_(source) {}

  void Write(CheckpointSink& sink) {
    sink.SetFileResources(shares_.file);
    ForEachFile([&](size_t index) {
      if (refused_.load()) {
        LookAt(sink.PlanFile(index));
      } else {
        WriteFile(*sink.CreateFile(index));
      }
    });
    // The losses that have no leave.
    Refuse(plan_,
           ConversionPlan{.losses = losses()}.Refused(options_.allowed_losses));
  }

  // Reads what may overflow, and the masters of weights that may be lost.
  void Look(const CheckpointSink& sink) {
    ForEachFile([&](size_t index) { LookAt(sink.PlanFile(index)); });
  }

  std::vector<SinkLoss> losses() const { return losses_.List(); }

 private:
  void ForEachFile(const std::function<void(size_t)>& body) {
    ParallelFor(num_files_, shares_.jobs, [&](size_t file) {
      if (failed_.load()) return;
      try {
        progress_.Add(0);  // A file may have no bytes to be told about.
        body(file);
      } catch (...) {
        Fail(std::current_exception());
      }
    });
    if (error_) std::rethrow_exception(error_);
  }

  void Fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_.store(true);
  }

  void WriteFile(SinkFile& file) {
    const std::span<const SinkSegment> segments = file.segments();
    for (size_t i = 0; i < segments.size(); ++i) {
      const bool done = ReadSegment(
          segments[i],
          [&](std::span<const std::byte> block) { file.Append(i, block); });
      if (!done) return;  // Unfinished: it is not committed.
      if (losses_.HasOtherThan(options_.allowed_losses)) refused_.store(true);
      if (refused_.load()) return LookAt(segments.subspan(i + 1));
    }
    file.Close();
  }

  void LookAt(std::span<const SinkSegment> segments) {
    for (const SinkSegment& segment : segments) {
      if (MayOverflow(segment) || implied_weights_.Concern(segment)) {
        ReadSegment(segment, [](std::span<const std::byte> /*block*/) {});
      }
    }
  }

  bool MayOverflow(const SinkSegment& segment) const {
    return std::any_of(segment.pieces.begin(), segment.pieces.end(),
                       [&](const SinkPiece& p) {
                         return CanOverflow(source_.tensors()[p.tensor].dtype,
                                            segment.dtype, segment.scale);
                       });
  }

  // Block by block; false where another thread failed meanwhile.
  bool ReadSegment(
      const SinkSegment& segment,
      const std::function<void(std::span<const std::byte>)>& take) {
    BlockSource blocks(source_, segment, shares_.block_bytes);
    int64_t first_element = 0;
    while (!blocks.done()) {
      if (failed_.load()) return false;
      const std::span<const std::byte> block = blocks.Next();
      losses_.AddOverflows(blocks.overflows(), segment.dtype);
      implied_weights_.Compare(segment, first_element, block, losses_);
      take(block);
      first_element +=
          static_cast<int64_t>(block.size()) / SizeBytes(segment.dtype);
      progress_.Add(block.size());
    }
    return true;
  }

  const Checkpoint& source_;
  const ConversionPlan& plan_;
  const ConvertOptions& options_;
  size_t num_files_;
  JobShares shares_;
  ByteProgress progress_;
  ImpliedWeights implied_weights_;
  ValueLosses losses_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> refused_{false};
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

std::vector<SinkLoss> FindValueLosses(const Checkpoint& source,
                                      const CheckpointSink& sink,
                                      const ConversionPlan& plan,
                                      const ConvertOptions& options) {
  Conversion conversion(source, plan, options);
  conversion.Look(sink);
  return conversion.losses();
}

std::vector<SinkLoss> Convert(const Checkpoint& source, CheckpointSink& sink,
                              const ConversionPlan& plan,
                              const ConvertOptions& options) {
  Refuse(plan, plan.Refused(options.allowed_losses));
  if (options.fs != nullptr) RequireSpace(*options.fs, plan);
  Conversion conversion(source, plan, options);
  conversion.Write(sink);
  sink.Finish();
  std::vector<SinkLoss> losses = conversion.losses();
  if (options.before_commit) options.before_commit(losses);
  // All of that takes time: the last moment to stop.
  if (options.progress) {
    options.progress(plan.payload_bytes, plan.payload_bytes);
  }
  sink.Commit();
  return losses;
}

}  // namespace muonstore
