// What the writer of a checkpoint format offers to the converter.
//
// What: a sink says, before anything is written, which files it will make and
//   which elements of the source each of their buffers holds. The converter
//   reads the source, writes the buffers from front to back, in blocks,
//   finishes, may look at the result, and commits. Nothing is visible to
//   readers before Commit().
// Ownership: a sink keeps references to the source and the layout that it was
//   made from; both must outlive it. Destroying a sink that was not committed
//   removes what it wrote.
// Threads: different files may be written by different threads at once; one
//   SinkFile belongs to one thread. Finish() and Commit() after every file is
//   closed.
// Failures: Error. kResourceExhausted where space ends. An error leaves what
//   was there before the conversion untouched.

#ifndef MUONSTORE_CHECKPOINT_SINK_H_
#define MUONSTORE_CHECKPOINT_SINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/dtype.h"
#include "muonstore/file_system.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore {

// How the target cuts its state, and in which form a format that knows several
// forms keeps it. Formats without ranks ignore what they do not need.
struct TargetLayout {
  // Trainable parameters, in the order that the rule starts from.
  std::vector<ParameterSpec> specs;
  ZeroRule rule;
  Partitioning partitioning;
  std::string precision;  // "bf16", "fp16", "fp32".
  std::string offload;    // "none", "cpu".
  // Class that will load it: "DeepSpeedZeroOptimizer", "BF16_Optimizer", ...
  std::string optimizer_class;
  // The stage in the run's config, where it is another one than the rule's:
  // BF16_Optimizer writes as stage 1 whatever that says.
  std::optional<int32_t> config_stage = std::nullopt;
  // Momentum in the unit of this loss scale, where the source's unit does not
  // say (fp16 without offload); 0: not given.
  double momentum_scale = 0;
};

// A run of a source tensor in a buffer of the target.
struct SinkPiece {
  size_t tensor = 0;  // Index into the source's tensors().
  int64_t tensor_offset = 0;
  int64_t segment_offset = 0;
  int64_t length = 0;
};

// A buffer to be filled. What no piece covers is zero.
struct SinkSegment {
  // For messages: "rank 3 momentum of group 0".
  std::string name;
  DType dtype = DType::kF32;
  int64_t num_elements = 0;
  // Values are multiplied by it (a change of the momentum's unit); 1 keeps
  // every bit.
  double scale = 1;
  // Ascending by segment_offset, without overlap.
  std::vector<SinkPiece> pieces;
};

// Bytes that fill the buffers.
inline uint64_t PayloadBytes(std::span<const SinkSegment> segments) {
  uint64_t bytes = 0;
  for (const SinkSegment& segment : segments) {
    bytes += static_cast<uint64_t>(segment.num_elements) *
             static_cast<uint64_t>(SizeBytes(segment.dtype));
  }
  return bytes;
}

class SinkFile {
 public:
  virtual ~SinkFile() = default;
  SinkFile() = default;
  SinkFile(const SinkFile&) = delete;
  SinkFile& operator=(const SinkFile&) = delete;

  virtual const std::string& path() const = 0;
  // In the order in which they must be filled.
  virtual std::span<const SinkSegment> segments() const = 0;
  // The next bytes of `segment`. Segments are filled one after the other, each
  // from its first to its last byte.
  virtual void Append(size_t segment, std::span<const std::byte> bytes) = 0;
  // Completes the file and makes it durable. Every segment must be full.
  virtual void Close() = 0;
};

// State that the target cannot hold.
struct SinkLoss {
  // What `--allow-loss` names: "momentum", "optimizer-state", "carried", ...
  std::string kind;
  std::string message;
  // Tensors of the source of which no element, or not every one, is in the
  // target. Every element of every other tensor must be in some piece, but for
  // a compute weight that is round(master).
  std::vector<size_t> tensors = {};
  // Left out because the user chose what to take: listed, never refused.
  bool is_chosen = false;
};

// What a file that is being written may use beside its caller's blocks.
struct SinkFileResources {
  uint64_t buffer_bytes = uint64_t{8} << 20;
  // To compress with; the caller's own thread counts.
  int32_t num_threads = 1;
};

class CheckpointSink {
 public:
  virtual ~CheckpointSink() = default;
  CheckpointSink() = default;
  CheckpointSink(const CheckpointSink&) = delete;
  CheckpointSink& operator=(const CheckpointSink&) = delete;

  // The tag directory, or the folder that the files go to.
  virtual std::string path() const = 0;
  virtual size_t num_files() const = 0;
  // The buffers of a file, known without making it: the converter proves that
  // they hold everything before anything is written.
  virtual std::vector<SinkSegment> PlanFile(size_t file) const = 0;
  // Everything of the source that will not be in the target.
  virtual std::span<const SinkLoss> losses() const = 0;
  // Choices that a user should know: "parameters in module order, as ...".
  virtual std::span<const std::string> notes() const = 0;
  // Of each file; before the first one is created. Not looked at by sinks whose
  // files hold nothing back.
  virtual void SetFileResources(const SinkFileResources& /*resources*/) {}
  virtual std::unique_ptr<SinkFile> CreateFile(size_t file) = 0;
  // Writes what the target has beside the files, durably, so that Commit() only
  // renames: a full disk is an error here.
  virtual void Finish() = 0;
  // After Finish(): files in which path() already holds the target. It reads
  // what was written; writing through it is an error.
  virtual std::shared_ptr<FileSystem> Preview() const = 0;
  // The one step that makes the target exist; durable afterwards. Finishes
  // where that was not done.
  virtual void Commit() = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_CHECKPOINT_SINK_H_
