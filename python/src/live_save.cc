#include "python/src/live_save.h"

#include <algorithm>
#include <utility>

#include "formats/deepspeed/carried_values.h"
#include "formats/native/carried.h"
#include "formats/native/file_names.h"
#include "formats/native/rank_writer.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/checkpoint/prune_root.h"

namespace muonstore::python {
namespace {

constexpr size_t kPieceBytes = size_t{32} << 20;

}  // namespace

LiveSave::LiveSave(const LiveRun& run, LiveSaveOptions options)
    : fs_(PosixFileSystem()),
      rank_(run.rank),
      options_(std::move(options)),
      checkpoint_(run) {
  os::RequireTagName(options_.tag, options_.root);
  if (options_.keep < 0) {
    throw Error(
        ErrorCode::kInvalidArgument, "a number of tags to keep is not negative",
        {.expected = "0 (all) or more", .found = StrCat(options_.keep)});
  }
}

LiveSave::~LiveSave() { Close(); }

void LiveSave::Close() {
  RemoveOwnFile();
  tag_.reset();  // Removes the files of every rank that rank 0 sees.
  root_.reset();
  draft_.reset();
}

std::string LiveSave::path() const {
  return StrCat(options_.root, "/", options_.tag);
}

std::string LiveSave::Open() {
  root_.emplace(fs_, options_.root);
  save_id_ = native::NewSaveId();
  tag_.emplace(*root_, options_.tag, save_id_, options_.overwrite);
  return save_id_;
}

uint64_t LiveSave::Plan(const std::string& save_id) {
  save_id_ = save_id;
  draft_.emplace(checkpoint_, checkpoint_.layout(),
                 native::SinkOptions{.tag = options_.tag,
                                     .overwrite = options_.overwrite,
                                     .zstd_level = options_.zstd_level},
                 save_id_);
  return draft_->plan_digest();
}

std::vector<LiveSegment> LiveSave::segments() const {
  const auto bare = draft_->BareSegmentsOf(rank_);
  const std::vector<SinkSegment> whole = draft_->SegmentsOf(rank_);
  std::vector<LiveSegment> segments;
  for (size_t i = 0; i < bare.size(); ++i) {
    segments.push_back({.kind = bare[i].kind,
                        .flat_group = bare[i].flat_group,
                        .num_elements = bare[i].num_elements});
    if (bare[i].flat_group < 0) {
      const size_t tensor = whole[i].pieces.at(0).tensor;
      segments.back().name = checkpoint_.tensors()[tensor].key.parameter;
    }
  }
  return segments;
}

void LiveSave::Write(
    std::span<const std::span<const std::byte>> buffers,
    const std::function<void(uint64_t done, uint64_t total)>& tell) {
  const std::string name =
      StrCat(path(), "/", native::RankFileName(rank_, save_id_));
  auto created = fs_->CreateDirectFile(name);
  file_ = name;
  const auto writer = draft_->MakeWriter(rank_, std::move(created));
  const uint64_t total = PayloadBytes(writer->segments());
  uint64_t done = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const std::span<const std::byte> buffer = buffers[i];
    for (size_t at = 0; at < buffer.size(); at += kPieceBytes) {
      tell(done, total);
      const auto piece =
          buffer.subspan(at, std::min(kPieceBytes, buffer.size() - at));
      writer->Append(i, piece);
      done += piece.size();
    }
  }
  tell(done, total);
  writer->Close();
}

std::vector<std::byte> LiveSave::Report() {
  // Rank 0 may commit from here on.
  if (rank_ != 0) file_.clear();
  return draft_->Report(rank_);
}

void LiveSave::Commit(const std::vector<std::vector<std::byte>>& reports,
                      const std::vector<std::string>& carried) {
  draft_->TakeReports(*tag_, reports);
  const native::NativeCarriedState values(fs_, carried);
  if (!carried.empty()) {
    if (const auto first = values.rank(0).model_states) {
      draft_->NameCarried(deepspeed::CarriedValues(first->value()));
    }
  }
  draft_->WriteRest(*tag_, carried.empty() ? nullptr : &values);
  std::unique_ptr<os::StagedFile> latest;
  if (options_.set_latest) latest = os::StageLatest(*root_, options_.tag);
  tag_->Commit();
  file_.clear();
  if (latest != nullptr) latest->Commit();
  notes_.assign(draft_->notes().begin(), draft_->notes().end());
  if (options_.keep > 0) PruneOldTags();
}

// The new tag is there: what goes wrong now is no failure of the save.
void LiveSave::PruneOldTags() {
  try {
    pruned_ =
        PruneRoot(*root_, {.keep = options_.keep, .protect = options_.tag});
  } catch (const Error& error) {
    notes_.push_back(StrCat("old tags stay: ", error.what()));
  }
}

void LiveSave::RemoveOwnFile() {
  if (file_.empty() || (tag_ && tag_->committed())) return;
  try {
    fs_->Remove(file_);
  } catch (const Error&) {
    // Rank 0 has removed it, or the next writer does.
  }
  file_.clear();
}

}  // namespace muonstore::python
