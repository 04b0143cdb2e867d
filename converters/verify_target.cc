#include "converters/verify_target.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "converters/held_parts.h"
#include "converters/segment_reader.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/sink.h"
#include "muonstore/error.h"
#include "muonstore/open.h"
#include "src/base/str.h"
#include "src/inspect/parallel.h"
#include "src/inspect/state_diff.h"
#include "src/state/tensor_index.h"

namespace muonstore {
namespace {

constexpr int64_t kBlockBytes = 4 << 20;

// A tensor as the target has it.
struct Found {
  DType dtype;
  Shape shape;
  std::vector<ElementRange> missing = {};
};

// What was written, opened again.
class Target {
 public:
  virtual ~Target() = default;
  // The target's form of a tensor of the source; nullopt: it has none.
  virtual std::optional<Found> Find(size_t tensor) const = 0;
  virtual void Read(size_t tensor, ElementRange range,
                    std::span<std::byte> out) const = 0;
};

class CheckpointTarget final : public Target {
 public:
  CheckpointTarget(const Checkpoint& source,
                   std::unique_ptr<Checkpoint> checkpoint)
      : source_(source),
        checkpoint_(std::move(checkpoint)),
        index_(*checkpoint_) {}

  const Checkpoint& checkpoint() const { return *checkpoint_; }

  std::optional<Found> Find(size_t tensor) const override {
    const auto at = index_.Find(source_.tensors()[tensor].key);
    if (!at) return std::nullopt;
    const CheckpointTensor& found = checkpoint_->tensors()[*at];
    return Found{found.dtype, found.shape, found.missing};
  }
  void Read(size_t tensor, ElementRange range,
            std::span<std::byte> out) const override {
    ReadTensor(*checkpoint_, *index_.Find(source_.tensors()[tensor].key), range,
               out);
  }

 private:
  const Checkpoint& source_;
  std::unique_ptr<Checkpoint> checkpoint_;
  TensorIndex index_;
};

class SafetensorsTarget final : public Target {
 public:
  SafetensorsTarget(const std::shared_ptr<FileSystem>& fs,
                    const safetensors::SafetensorsSink& sink) {
    for (const safetensors::Shard& shard : sink.plan().shards) {
      std::shared_ptr<RandomAccessFile> file =
          fs->OpenForRead(StrCat(sink.path(), "/", shard.file_name));
      const safetensors::Header header = safetensors::ReadHeader(*file);
      std::map<std::string, const safetensors::TensorEntry*> by_name;
      for (const auto& entry : header.entries) by_name[entry.name] = &entry;
      for (const safetensors::ExportedTensor& tensor : shard.tensors) {
        const auto entry = by_name.find(tensor.entry.name);
        if (entry == by_name.end()) continue;
        places_.emplace(
            tensor.tensor,
            Place{file,
                  {entry->second->dtype, entry->second->shape},
                  header.data_offset_bytes + entry->second->begin_bytes});
      }
    }
  }

  std::optional<Found> Find(size_t tensor) const override {
    const auto place = places_.find(tensor);
    if (place == places_.end()) return std::nullopt;
    return place->second.found;
  }
  void Read(size_t tensor, ElementRange range,
            std::span<std::byte> out) const override {
    const Place& place = places_.at(tensor);
    const auto first = static_cast<uint64_t>(range.begin) *
                       static_cast<uint64_t>(SizeBytes(place.found.dtype));
    place.file->ReadAt(place.offset_bytes + first, out);
  }

 private:
  struct Place {
    std::shared_ptr<RandomAccessFile> file;
    Found found;
    uint64_t offset_bytes;
  };

  std::map<size_t, Place> places_;  // By tensor of the source.
};

class Verification {
 public:
  Verification(const Checkpoint& source, const CheckpointSink& sink,
               const ConversionPlan& plan, const Target& target)
      : source_(source),
        plan_(plan),
        target_(target),
        scale_(source.tensors().size(), 1),
        is_skipped_(source.tensors().size(), false) {
    for (const SinkLoss& loss : plan.losses) {
      // Zeros and infinities, as they are read.
      if (loss.kind == kMissingLoss || loss.kind == kOverflowLoss) continue;
      for (const size_t tensor : loss.tensors) is_skipped_[tensor] = true;
    }
    for (size_t file = 0; file < sink.num_files(); ++file) {
      for (const SinkSegment& segment : sink.PlanFile(file)) {
        for (const SinkPiece& piece : segment.pieces) {
          scale_[piece.tensor] = segment.scale;
        }
      }
    }
  }

  void Run(const VerifyTargetOptions& options) {
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < is_skipped_.size(); ++i) total_bytes += Bytes(i);
    ByteProgress progress(options.progress, total_bytes);
    ParallelFor(is_skipped_.size(), options.jobs,
                [&](size_t i) { Compare(i, progress); });
  }

 private:
  uint64_t Bytes(size_t tensor) const {
    const CheckpointTensor& info = source_.tensors()[tensor];
    return is_skipped_[tensor]
               ? 0
               : static_cast<uint64_t>(info.shape.num_elements()) *
                     static_cast<uint64_t>(SizeBytes(info.dtype));
  }

  Error Different(size_t tensor, std::string message) const {
    return Error(ErrorCode::kDataLoss, std::move(message),
                 {.file = plan_.path,
                  .tensor = source_.tensors()[tensor].key.ToString()});
  }

  void Compare(size_t tensor, ByteProgress& progress) const {
    if (is_skipped_[tensor]) return;
    const CheckpointTensor& info = source_.tensors()[tensor];
    const auto found = target_.Find(tensor);
    if (!found) {
      if (info.key.kind == kWeight) return;  // round(master) of the target.
      throw Different(tensor, "the target does not hold the tensor");
    }
    if (found->shape != info.shape) {
      throw Different(tensor, "the target has another shape");
    }
    for (const ElementRange& range : found->missing) {
      if (!Contains(info.missing, range)) {
        throw Different(tensor, "the target lacks elements");
      }
    }
    for (const ElementRange& range :
         HeldParts({0, found->shape.num_elements()}, found->missing)) {
      CompareRange(tensor, *found, range, progress);
    }
  }

  static bool Contains(const std::vector<ElementRange>& ranges,
                       const ElementRange& range) {
    return std::any_of(
        ranges.begin(), ranges.end(), [&](const ElementRange& other) {
          return other.begin <= range.begin && range.end <= other.end;
        });
  }

  void CompareRange(size_t tensor, const Found& found, ElementRange whole,
                    ByteProgress& progress) const {
    const int64_t count = found.shape.num_elements();
    const SinkSegment segment{.dtype = found.dtype,
                              .num_elements = count,
                              .scale = scale_[tensor],
                              .pieces = {{.tensor = tensor, .length = count}}};
    SegmentReader reader(source_);
    std::vector<std::byte> want;
    std::vector<std::byte> have;
    const int64_t item = SizeBytes(found.dtype);
    const int64_t step = kBlockBytes / item;
    for (int64_t at = whole.begin; at < whole.end; at += step) {
      const ElementRange range{at, std::min(whole.end, at + step)};
      want.resize(static_cast<size_t>(range.size() * item));
      have.resize(want.size());
      reader.Read(segment, at, want);
      target_.Read(tensor, range, have);
      const auto first = std::mismatch(want.begin(), want.end(), have.begin());
      if (first.first != want.end()) {
        throw Different(
            tensor, StrCat("element ", at + (first.first - want.begin()) / item,
                           " differs from the source"));
      }
      progress.Add(static_cast<uint64_t>(
          range.size() * SizeBytes(source_.tensors()[tensor].dtype)));
    }
  }

  const Checkpoint& source_;
  const ConversionPlan& plan_;
  const Target& target_;
  std::vector<double> scale_;     // By tensor.
  std::vector<bool> is_skipped_;  // By tensor: it is lost.
};

// What the source lacks as well is no fault of the target.
bool IsOfTheSource(const Checkpoint& source, const Finding& finding) {
  // Elements are compared later; so are weights that the source has, too.
  if (finding.code == "missing_elements") return true;
  if (finding.code == kWeightsLoss) {
    const auto& tensors = source.tensors();
    return std::any_of(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return tensor.key.ToString() == finding.place.tensor;
    });
  }
  const auto& findings = source.info().findings;
  return std::any_of(findings.begin(), findings.end(),
                     [&](const Finding& f) { return f.code == finding.code; });
}

void RequireWhole(const std::shared_ptr<FileSystem>& fs,
                  const Checkpoint& source, const std::string& path,
                  const VerifyTargetOptions& options) {
  const VerifyReport report =
      VerifyCheckpoint(fs, path, {.progress = options.progress});
  for (const Finding& finding : report.findings) {
    if (finding.severity == Finding::Severity::kFault &&
        !IsOfTheSource(source, finding)) {
      throw Error(ErrorCode::kDataLoss, finding.message, finding.place);
    }
  }
}

void RequireSameValues(const Checkpoint& source, const Checkpoint& target) {
  for (const auto& values : {DiffGroups(source, target),
                             DiffCounters(source.info(), target.info())}) {
    for (const ValueDiff& value : values) {
      if (!value.is_difference) continue;
      throw Error(
          ErrorCode::kDataLoss,
          StrCat(Printable(value.what), " differs from the source"),
          {.file = target.info().path, .expected = value.a, .found = value.b});
    }
  }
}

}  // namespace

void VerifyTarget(const Checkpoint& source, const CheckpointSink& sink,
                  const ConversionPlan& plan,
                  const VerifyTargetOptions& options) {
  const std::shared_ptr<FileSystem> fs = sink.Preview();
  const auto* exported =
      dynamic_cast<const safetensors::SafetensorsSink*>(&sink);
  if (exported != nullptr) {
    const SafetensorsTarget target(fs, *exported);
    Verification(source, sink, plan, target).Run(options);
    return;
  }
  RequireWhole(fs, source, plan.path, options);
  const CheckpointTarget target(
      source, OpenCheckpoint(fs, plan.path, {.allow_loss = true}));
  Verification(source, sink, plan, target).Run(options);
  RequireSameValues(source, target.checkpoint());
}

}  // namespace muonstore
