#include "formats/deepspeed/sink_file.h"

#include <utility>

#include "muonstore/error.h"

namespace muonstore::deepspeed {
namespace {

// The plan's storages are those of `keyed`, one by one.
std::vector<uint32_t> StoragesOf(const FileDraft& draft,
                                 const std::vector<KeyedSegment>& keyed,
                                 const torchfile::TorchFilePlan& plan) {
  std::vector<uint32_t> storages;
  storages.reserve(plan.segments().size());
  for (const torchfile::StorageSegment& segment : plan.segments()) {
    storages.push_back(segment.storage);
  }
  bool same = storages.size() == keyed.size();
  for (size_t i = 0; same && i < keyed.size(); ++i) {
    same = draft.StorageOf(keyed[i].key) == storages[i];
  }
  if (!same) {
    throw Error(ErrorCode::kInternal,
                "the values of a file do not follow its buffers");
  }
  return storages;
}

std::vector<SinkSegment> WithoutKeys(std::vector<KeyedSegment> keyed) {
  std::vector<SinkSegment> segments;
  segments.reserve(keyed.size());
  for (KeyedSegment& one : keyed) {
    segments.push_back(std::move(one.segment));
  }
  return segments;
}

}  // namespace

TorchSinkFile::TorchSinkFile(std::unique_ptr<WritableFile> file,
                             const FileDraft& draft,
                             std::vector<KeyedSegment> segments,
                             const std::string& archive_root)
    : file_(std::move(file)), writer_(*file_, [&] {
        torchfile::TorchFilePlan plan(draft.draft(), archive_root);
        storages_ = StoragesOf(draft, segments, plan);
        return plan;
      }()) {
  segments_ = WithoutKeys(std::move(segments));
}

void TorchSinkFile::Append(size_t segment, std::span<const std::byte> bytes) {
  writer_.WriteStorage(storages_[segment], bytes);
}

void TorchSinkFile::Close() {
  writer_.Finish();
  file_->Sync();
  file_->Close();
}

}  // namespace muonstore::deepspeed
