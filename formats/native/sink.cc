#include "formats/native/sink.h"

#include <utility>
#include <vector>

#include "formats/native/draft.h"
#include "formats/native/file_names.h"

namespace muonstore::native {
namespace {

class NativeSink final : public CheckpointSink {
 public:
  NativeSink(os::OutputRoot& root, const SinkOptions& options,
             const Checkpoint& source, const TargetLayout& target)
      : source_(source),
        save_id_(NewSaveId()),
        draft_(source, target, options, save_id_),
        tag_(root, options.tag, save_id_, options.overwrite) {}

  std::string path() const override { return tag_.directory(); }
  size_t num_files() const override { return draft_.manifest().files.size(); }
  std::span<const SinkLoss> losses() const override { return {}; }
  std::span<const std::string> notes() const override { return draft_.notes(); }

  std::vector<SinkSegment> PlanFile(size_t file) const override {
    return draft_.SegmentsOf(static_cast<int32_t>(file));
  }

  void SetFileResources(const SinkFileResources& resources) override {
    resources_ = resources;
  }

  std::unique_ptr<SinkFile> CreateFile(size_t file) override {
    const auto rank = static_cast<int32_t>(file);
    return draft_.MakeWriter(rank, tag_.Create(RankFileName(rank, save_id_)),
                             resources_);
  }

  void Finish() override {
    if (finished_) return;
    draft_.WriteRest(tag_, source_.carried_state());
    finished_ = true;
  }

  std::shared_ptr<FileSystem> Preview() const override {
    return tag_.Preview();
  }

  void Commit() override {
    Finish();
    tag_.Commit();
  }

 private:
  const Checkpoint& source_;
  SinkFileResources resources_;
  std::string save_id_;
  Draft draft_;
  TagWriter tag_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<CheckpointSink> MakeNativeSink(os::OutputRoot& root,
                                               const SinkOptions& options,
                                               const Checkpoint& source,
                                               const TargetLayout& layout) {
  return std::make_unique<NativeSink>(root, options, source, layout);
}

}  // namespace muonstore::native
