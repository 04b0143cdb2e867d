#include "src/tier/nvme_arena.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "src/base/pending.h"
#include "src/base/str.h"

namespace muonstore::tier {
namespace {

// The parts of one read or write; says whose they were where one fails.
class JoinedPending final : public Pending {
 public:
  JoinedPending(std::vector<PendingPtr> parts, std::string what)
      : parts_(std::move(parts)), what_(std::move(what)) {}

  // All of them, also where one has failed: the memory is the caller's again.
  void Wait() override {
    std::optional<Error> failed;
    for (const PendingPtr& part : parts_) {
      try {
        part->Wait();
      } catch (const Error& error) {
        if (!failed) failed = error;
      }
    }
    if (failed) {
      throw Error(failed->code(), StrCat(what_, ": ", failed->message()),
                  failed->place());
    }
  }
  bool done() const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const PendingPtr& part) { return part->done(); });
  }

 private:
  std::vector<PendingPtr> parts_;
  std::string what_;
};

StagedJob Part(const StagedJob& whole, size_t begin, size_t size) {
  StagedJob part = whole;
  part.offset_bytes += begin;
  part.data += begin;
  part.size_bytes = size;
  return part;
}

}  // namespace

NvmeArena::NvmeArena(ArenaLayout layout, std::unique_ptr<ScratchFile> file,
                     std::shared_ptr<StagedTransfers> staged, Pinning pinning)
    : layout_(std::move(layout)),
      file_(std::move(file)),
      staged_(std::move(staged)),
      report_{.asked = pinning} {}

std::span<std::byte> NvmeArena::memory(int32_t block, int32_t slot) {
  (void)layout_.OffsetBytes(block, slot);  // Refuses what is not there.
  return {};
}

PendingPtr NvmeArena::Read(const BlockRange& from, std::span<std::byte> out) {
  return Start(from, {.offset_bytes = layout_.OffsetBytes(from, out.size()),
                      .data = out.data(),
                      .size_bytes = out.size()});
}

PendingPtr NvmeArena::Write(const BlockRange& to,
                            std::span<const std::byte> data) {
  // A write leaves the memory as it is; reads share the type of a job.
  return Start(to, {.is_write = true,
                    .offset_bytes = layout_.OffsetBytes(to, data.size()),
                    .data = const_cast<std::byte*>(data.data()),
                    .size_bytes = data.size()});
}

PendingPtr NvmeArena::Start(const BlockRange& range, const StagedJob& whole) {
  if (whole.size_bytes == 0) return std::make_unique<DonePending>();
  StagedJob job = whole;
  job.file = file_.get();
  job.end_bytes = layout_.OffsetBytes(range.block, range.slot) +
                  layout_.block_bytes(range.block);
  const uint64_t in_block = job.offset_bytes % kIoBlockBytes;
  const bool lies_alike =
      reinterpret_cast<uintptr_t>(job.data) % kIoBlockBytes == in_block;
  const size_t head = std::min<size_t>(
      job.size_bytes, in_block == 0 ? 0 : kIoBlockBytes - in_block);
  const size_t body =
      lies_alike ? (job.size_bytes - head) / kIoBlockBytes * kIoBlockBytes : 0;
  std::vector<PendingPtr> parts;
  if (body == 0) {
    parts.push_back(staged_->Start(job));
  } else {
    const size_t rest = job.size_bytes - head - body;
    parts.push_back(StartDirect(Part(job, head, body)));
    if (head > 0) parts.push_back(staged_->Start(Part(job, 0, head)));
    if (rest > 0) parts.push_back(staged_->Start(Part(job, head + body, rest)));
  }
  return std::make_unique<JoinedPending>(
      std::move(parts), StrCat("arena ", layout_.name(), " block ", range.block,
                               " slot ", range.slot));
}

PendingPtr NvmeArena::StartDirect(const StagedJob& part) {
  const std::span<std::byte> memory(part.data, part.size_bytes);
  return part.is_write ? file_->StartWrite(part.offset_bytes, memory)
                       : file_->StartRead(part.offset_bytes, memory);
}

}  // namespace muonstore::tier
