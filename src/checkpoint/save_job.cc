// How the ranks save together. Everything between ranks goes over a channel of
// the saver's own, never the step's.
//
//  1. Rank 0 locks the root, removes what saves that died left there, makes the
//     tag's folder and draws the save's id; every rank learns it.
//  2. Every rank plans the whole manifest and they compare it.
//  3. Every rank writes its segments into rank-<n>.<id>.h5 and fsyncs it. They
//     meet ten times a second, so that a dead rank is noticed and a failure of
//     one stops all.
//  4. Every rank reports the size of its file, the checksums of its metadata
//     and of each block, and where they lie, to rank 0. From here on its file
//     is no longer its own to remove: rank 0 may have committed.
//  5. Rank 0 looks whether it sees every file in its size, writes checksums,
//     view and manifest.json.<id>, and stages `latest`: all durable.
//  6. Rank 0 fsyncs the folder, renames manifest.json.<id> to manifest.json
//     (that is the commit), fsyncs folder and root (tag_writer.cc), and lets
//     `latest` name the tag by one more rename.
//  7. Rank 0 removes what the tag held before and tags beyond those to keep,
//     and unlocks the root. Every rank learns how it ended.
//
// A failure before the rename removes the files of this save and nothing else.
// A rank that does not learn how it ended leaves its file: the next writer
// removes it if it belongs to no manifest. The lock dies with rank 0, so that
// "the next writer" never meets a save that can still commit.
#include "src/checkpoint/save_job.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "formats/native/block_compressor.h"
#include "formats/native/file_names.h"
#include "formats/native/stream_writer.h"
#include "src/base/aligned_bytes.h"
#include "src/base/str.h"
#include "src/checkpoint/prune_root.h"
#include "src/checkpoint/shared_error.h"
#include "src/store/agreement.h"

namespace muonstore {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
// Of memory, which large pieces of go to the disk without a copy.
constexpr uint64_t kMemoryPieceBytes = uint64_t{32} << 20;
static_assert(kMemoryPieceBytes >= native::StreamWriter::kMinBorrowedBytes);

std::string OwnFileName(const SaveRequest& request, int32_t rank,
                        const std::string& save_id) {
  return StrCat(request.root, "/", request.tag, "/",
                native::RankFileName(rank, save_id));
}

}  // namespace

SaveJob::SaveJob(const StateStore& store, std::unique_ptr<Snapshot> snapshot,
                 SaveRequest request)
    : store_(store),
      snapshot_(std::move(snapshot)),
      request_(std::move(request)),
      source_(store, *snapshot_,
              {.groups = request_.options.groups,
               .scalars = request_.options.scalars}) {}

SaveJob::~SaveJob() {
  if (!reported_) RemoveOwnFile();
}

void SaveJob::Run(Communicator& ranks, SaveReport& report) {
  Open(ranks);
  Plan(ranks);
  const auto write = [this](const StopFlag& stop) { WriteFile(stop); };
  if (const auto error = RunTogether(ranks, write)) Abandon(ranks, *error);
  GatherReports(ranks);
  const auto commit = [&](const StopFlag& stop) {
    if (commits()) Commit(stop, report);
  };
  const auto error = RunTogether(ranks, commit);
  std::array<int64_t, 1> committed = {tag_ && tag_->committed() ? 1 : 0};
  ranks.AllReduce(committed, ReduceOp::kMax);
  if (error && committed[0] == 0) Abandon(ranks, *error);
  if (error) throw Error(*error);
  const uint64_t rank_bytes =
      draft_->manifest().files[static_cast<size_t>(ranks.rank())].size_bytes;
  std::array<int64_t, 1> total = {static_cast<int64_t>(rank_bytes)};
  ranks.AllReduce(total, ReduceOp::kSum);
  report.tag = request_.tag;
  report.path = StrCat(request_.root, "/", request_.tag);
  report.rank_bytes = rank_bytes;
  report.total_bytes = static_cast<uint64_t>(total[0]);
  report.waited_s = snapshot_->waited_s();
  report.notes.insert(report.notes.end(), draft_->notes().begin(),
                      draft_->notes().end());
  tag_.reset();
  root_.reset();
}

void SaveJob::Open(Communicator& ranks) {
  const auto error = Caught([&] {
    if (!commits()) return;
    root_.emplace(request_.fs, request_.root);
    save_id_ = native::NewSaveId();
    tag_.emplace(*root_, request_.tag, save_id_, request_.options.overwrite);
  });
  if (const auto shared = SharedError(ranks, error)) throw Error(*shared);
  save_id_ = BroadcastText(ranks, save_id_, 0);
  // The order in which rank 0 wants its segments saved.
  const auto segments = snapshot_->segments();
  std::vector<std::array<int32_t, 2>> order;
  for (const SnapshotSegment& segment : segments) {
    order.push_back({static_cast<int32_t>(StoreKindIndex(segment.kind)),
                     segment.flat_group});
  }
  ranks.Broadcast(std::as_writable_bytes(std::span(order)), 0);
  for (const auto& [kind, flat_group] : order) {
    order_.push_back(
        {StateKind(kStoreKinds.at(static_cast<size_t>(kind))), flat_group});
  }
}

void SaveJob::Plan(Communicator& ranks) {
  auto error = Caught([&] {
    draft_.emplace(
        source_, LayoutOf(store_),
        native::SinkOptions{.tag = request_.tag,
                            .zstd_level = request_.options.zstd_level,
                            .slot_order = order_},
        save_id_);
  });
  error = SharedError(ranks, error);
  if (!error) {
    error = Caught([&] {
      RequireAgreement(ranks, "what to save", std::nullopt,
                       static_cast<int64_t>(draft_->plan_digest()));
    });
  }
  if (error) Abandon(ranks, *error);
}

SinkFileResources SaveJob::Resources() const {
  SinkFileResources resources;
  resources.num_threads = request_.options.num_threads;
  if (request_.options.zstd_level > 0) {
    // Room for a block of each thread, beside the quarter of the stream.
    const uint64_t bytes = native::kDefaultBlockBytes *
                           native::BlockCompressor::kBytesPerBlockByte *
                           static_cast<uint64_t>(resources.num_threads);
    resources.buffer_bytes = bytes + bytes / 3;
  }
  return resources;
}

void SaveJob::WriteFile(const StopFlag& stop) {
  const int32_t rank = store_.rank();
  const std::string path = OwnFileName(request_, rank, save_id_);
  auto file = request_.fs->CreateDirectFile(path);
  file_ = path;
  const auto writer = draft_->MakeWriter(rank, std::move(file), Resources());
  const auto wanted = draft_->BareSegmentsOf(rank);
  const auto pinned = snapshot_->segments();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto found = std::find_if(
        pinned.begin(), pinned.end(), [&](const SnapshotSegment& segment) {
          return segment.kind == wanted[i].kind &&
                 segment.flat_group == wanted[i].flat_group;
        });
    if (found == pinned.end()) {
      throw Error(ErrorCode::kInternal, "a segment is not in the snapshot",
                  {.tensor = wanted[i].kind});
    }
    const auto index = static_cast<size_t>(found - pinned.begin());
    WriteSegment(*writer, i, index, stop);
    snapshot_->Release(index);
  }
  ThrowIfStopped(stop);
  writer->Close();
}

void SaveJob::WriteSegment(native::RankWriter& writer, size_t segment,
                           size_t pinned, const StopFlag& stop) {
  const SnapshotSegment& of = snapshot_->segments()[pinned];
  const auto memory = snapshot_->memory(pinned);
  const uint64_t size = static_cast<uint64_t>(of.num_elements) *
                        static_cast<uint64_t>(SizeBytes(of.dtype));
  // Of a segment that is not memory, the next piece is read while this one is
  // written.
  std::array<AlignedBytes, 2> buffers;
  PendingPtr reading;
  const auto start = [&](uint64_t at) {
    AlignedBytes& buffer = buffers.at(at / kPieceBytes % 2);
    if (buffer.size() == 0) buffer = AlignedBytes(kPieceBytes);
    reading = snapshot_->Read(
        pinned, at, buffer.span().first(std::min(kPieceBytes, size - at)));
  };
  if (memory.empty()) start(0);
  const uint64_t step = memory.empty() ? kPieceBytes : kMemoryPieceBytes;
  for (uint64_t at = 0; at < size; at += step) {
    ThrowIfStopped(stop);
    const uint64_t length = std::min(step, size - at);
    if (!memory.empty()) {
      writer.Append(segment, memory.subspan(at, length));
      continue;
    }
    reading->Wait();
    if (at + length < size) start(at + length);
    writer.Append(segment,
                  buffers.at(at / kPieceBytes % 2).span().first(length));
  }
}

void SaveJob::GatherReports(Communicator& ranks) {
  const int32_t rank = ranks.rank();
  const std::vector<std::byte> mine = draft_->Report(rank);
  ExchangePlan plan;
  plan.sends.push_back({0, mine});
  reports_.resize(commits() ? static_cast<size_t>(ranks.size()) : 0);
  for (size_t peer = 0; peer < reports_.size(); ++peer) {
    reports_[peer].resize(draft_->ReportBytes(static_cast<int32_t>(peer)));
    plan.receives.push_back({static_cast<int32_t>(peer), reports_[peer]});
  }
  reported_ = true;
  ranks.Exchange(plan)->Wait();
}

void SaveJob::Commit(const StopFlag& stop, SaveReport& report) {
  draft_->TakeReports(*tag_, reports_);
  draft_->WriteRest(*tag_, nullptr);
  std::unique_ptr<os::StagedFile> latest;
  if (request_.options.set_latest) {
    latest = os::StageLatest(*root_, request_.tag);
  }
  ThrowIfStopped(stop);
  tag_->Commit();
  if (latest != nullptr) latest->Commit();
  if (request_.options.keep == 0) return;
  const auto error = Caught([&] {
    report.pruned = PruneRoot(
        *root_, {.keep = request_.options.keep, .protect = request_.tag});
  });
  if (error) {
    report.notes.push_back(StrCat("old tags stay: ", error->what()));
  }
}

void SaveJob::Abandon(Communicator& ranks, const Error& error) {
  tag_.reset();  // Removes the files of every rank that rank 0 sees.
  root_.reset();
  try {
    ranks.Barrier();
  } catch (const Error&) {
    // The error that led here matters more.
  }
  RemoveOwnFile();
  throw Error(error);
}

void SaveJob::RemoveOwnFile() {
  if (file_.empty()) return;
  try {
    request_.fs->Remove(file_);
  } catch (const Error&) {
    // Rank 0 has removed it, or the next writer does.
  }
  file_.clear();
}

}  // namespace muonstore
