#include "formats/deepspeed/sink.h"

#include <optional>
#include <utility>
#include <vector>

#include "formats/deepspeed/file_draft.h"
#include "formats/deepspeed/file_names.h"
#include "formats/deepspeed/model_file.h"
#include "formats/deepspeed/optim_file.h"
#include "formats/deepspeed/sink_file.h"
#include "formats/deepspeed/sink_losses.h"
#include "formats/deepspeed/target.h"
#include "formats/deepspeed/target_segments.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

class DeepSpeedSink final : public CheckpointSink {
 public:
  DeepSpeedSink(const Checkpoint& source, const TargetLayout& layout,
                os::OutputRoot& root, const SinkOptions& options)
      : target_(source, layout),
        segments_(target_),
        root_(root),
        directory_(root, options.tag, options.overwrite),
        losses_(FindLosses(target_)),
        notes_(FindNotes(target_)) {
    const int32_t num_models = target_.stage() == 3 ? target_.num_ranks() : 1;
    for (int32_t rank = 0; rank < num_models; ++rank) {
      files_.push_back({true, rank});
    }
    for (int32_t rank = 0; rank < target_.num_ranks(); ++rank) {
      files_.push_back({false, rank});
    }
  }

  std::string path() const override { return directory_.final_path(); }
  size_t num_files() const override { return files_.size(); }
  std::vector<SinkSegment> PlanFile(size_t file) const override {
    std::vector<SinkSegment> segments;
    for (KeyedSegment& keyed : SegmentsOf(file)) {
      segments.push_back(std::move(keyed.segment));
    }
    return segments;
  }
  std::span<const SinkLoss> losses() const override { return losses_; }
  std::span<const std::string> notes() const override { return notes_; }

  std::unique_ptr<SinkFile> CreateFile(size_t file) override {
    const auto [is_model, rank] = files_[file];
    std::vector<KeyedSegment> segments = SegmentsOf(file);
    torchfile::CarriedRank carried = target_.Carried(rank);
    FileDraft draft(segments, std::move(is_model ? carried.model_states
                                                 : carried.optim_states));
    if (is_model) {
      BuildModelFile(target_, segments_, rank, draft);
    } else {
      BuildOptimFile(target_, segments_, rank, draft);
    }
    const std::string name = NameOf(file);
    constexpr size_t kExtension = 3;  // ".pt"
    return std::make_unique<TorchSinkFile>(
        root_.fs().CreateFile(StrCat(directory_.path(), "/", name)), draft,
        std::move(segments), name.substr(0, name.size() - kExtension));
  }

  void Finish() override {}
  std::shared_ptr<FileSystem> Preview() const override {
    return directory_.Preview();
  }
  void Commit() override { directory_.Commit(); }

 private:
  struct File {
    bool is_model = false;
    int32_t rank = 0;
  };

  std::string NameOf(size_t file) const {
    const auto [is_model, rank] = files_[file];
    if (!is_model) {
      return MakeOptimFileName(rank, target_.is_bf16());
    }
    return MakeModelFileName(target_.stage() == 3 ? std::optional(rank)
                                                  : std::nullopt);
  }

  std::vector<KeyedSegment> SegmentsOf(size_t file) const {
    const auto [is_model, rank] = files_[file];
    return is_model ? segments_.OfModelFile(rank) : segments_.OfOptimFile(rank);
  }

  Target target_;
  TargetSegments segments_;
  os::OutputRoot& root_;
  os::StagedDirectory directory_;
  std::vector<SinkLoss> losses_;
  std::vector<std::string> notes_;
  std::vector<File> files_;
};

}  // namespace

std::unique_ptr<CheckpointSink> MakeSink(const Checkpoint& source,
                                         const TargetLayout& layout,
                                         os::OutputRoot& root,
                                         const SinkOptions& options) {
  return std::make_unique<DeepSpeedSink>(source, layout, root, options);
}

}  // namespace muonstore::deepspeed
