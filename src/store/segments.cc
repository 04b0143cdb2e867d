#include "src/store/segments.h"

#include <algorithm>
#include <utility>

#include "muonstore/error.h"
#include "src/base/aligned_bytes.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Of copies between slots that are not memory.
constexpr size_t kCopyBytes = size_t{4} << 20;

[[noreturn]] void ThrowInternal(std::string_view what, std::string_view kind,
                                int32_t flat_group) {
  throw Error(ErrorCode::kInternal,
              StrCat(what, ": ", kind, " of flat group ", flat_group));
}

}  // namespace

Segments::Segments(std::span<const ArenaPlan> plans, int32_t num_flat_groups)
    : num_flat_groups_(static_cast<size_t>(num_flat_groups)),
      index_(kStoreKinds.size() * num_flat_groups_, -1) {
  for (const ArenaPlan& plan : plans) {
    arenas_.push_back(plan.tier->CreateArena(plan.arena));
    Arena* const arena = arenas_.back().get();
    for (size_t i = 0; i < plan.flat_groups.size(); ++i) {
      Segment& segment = segments_.emplace_back();
      segment.size_bytes = plan.arena.block_bytes[i];
      segment.addressable = plan.tier->addressable();
      for (int32_t slot = 0; slot < plan.arena.num_slots; ++slot) {
        segment.slots.at(static_cast<size_t>(slot)) = {
            arena, static_cast<int32_t>(i), slot};
      }
      index_[StoreKindIndex(plan.kind) * num_flat_groups_ +
             static_cast<size_t>(plan.flat_groups[i])] =
          slots_.Add(plan.arena.num_slots, segment.addressable);
    }
  }
}

void Segments::AddSpares(const ArenaPlan& plan, std::unique_ptr<Arena> arena) {
  for (size_t i = 0; i < plan.flat_groups.size(); ++i) {
    const int32_t index = Require(plan.kind, plan.flat_groups[i]);
    Segment& segment = segments_[static_cast<size_t>(index)];
    const auto unused = std::find_if(
        segment.slots.begin(), segment.slots.end(),
        [](const Address& address) { return address.arena == nullptr; });
    // Nobody looks at it before the table knows of the slot.
    *unused = {arena.get(), static_cast<int32_t>(i), 0};
    slots_.AddSlot(index);
  }
  const std::lock_guard lock(arenas_mutex_);
  arenas_.push_back(std::move(arena));
}

std::vector<Arena*> Segments::arenas() const {
  const std::lock_guard lock(arenas_mutex_);
  std::vector<Arena*> arenas;
  for (const auto& arena : arenas_) arenas.push_back(arena.get());
  return arenas;
}

int32_t Segments::Find(std::string_view kind, int32_t flat_group) const {
  const size_t of = StoreKindIndex(kind);
  const auto group = static_cast<size_t>(flat_group);
  if (of >= kStoreKinds.size() || group >= num_flat_groups_) return -1;
  return index_[of * num_flat_groups_ + group];
}

int32_t Segments::Require(std::string_view kind, int32_t flat_group) const {
  const int32_t segment = Find(kind, flat_group);
  if (segment < 0) ThrowInternal("there is no such segment", kind, flat_group);
  return segment;
}

bool Segments::has(std::string_view kind, int32_t flat_group) const {
  return Find(kind, flat_group) >= 0;
}

bool Segments::addressable(std::string_view kind, int32_t flat_group) const {
  const int32_t segment = Find(kind, flat_group);
  return segment >= 0 && segments_[static_cast<size_t>(segment)].addressable;
}

uint64_t Segments::size_bytes(std::string_view kind, int32_t flat_group) const {
  const int32_t segment = Find(kind, flat_group);
  return segment < 0 ? 0 : segments_[static_cast<size_t>(segment)].size_bytes;
}

const Segments::Address& Segments::AddressOf(int32_t segment,
                                             int32_t slot) const {
  return segments_[static_cast<size_t>(segment)]
      .slots[static_cast<size_t>(slot)];
}

std::span<std::byte> Segments::MemoryOf(int32_t segment, int32_t slot) const {
  if (!segments_[static_cast<size_t>(segment)].addressable) return {};
  const Address& address = AddressOf(segment, slot);
  return address.arena->memory(address.block, address.slot);
}

std::span<std::byte> Segments::bytes(std::string_view kind,
                                     int32_t flat_group) const {
  const int32_t segment = Find(kind, flat_group);
  if (segment < 0) return {};
  return MemoryOf(segment, slots_.current(segment));
}

std::span<float> Segments::f32(std::string_view kind,
                               int32_t flat_group) const {
  const std::span<std::byte> memory = bytes(kind, flat_group);
  // Blocks begin at multiples of 4096 and hold floats from the start.
  return {reinterpret_cast<float*>(memory.data()),
          memory.size() / sizeof(float)};
}

PendingPtr Segments::ReadSlot(int32_t segment, int32_t slot,
                              uint64_t offset_bytes,
                              std::span<std::byte> out) const {
  const Address& address = AddressOf(segment, slot);
  return address.arena->Read({.block = address.block,
                              .slot = address.slot,
                              .offset_bytes = offset_bytes},
                             out);
}

PendingPtr Segments::WriteSlot(int32_t segment, int32_t slot,
                               uint64_t offset_bytes,
                               std::span<const std::byte> data) const {
  const Address& address = AddressOf(segment, slot);
  return address.arena->Write({.block = address.block,
                               .slot = address.slot,
                               .offset_bytes = offset_bytes},
                              data);
}

PendingPtr Segments::Read(std::string_view kind, int32_t flat_group,
                          uint64_t offset_bytes,
                          std::span<std::byte> out) const {
  const int32_t segment = Require(kind, flat_group);
  return ReadSlot(segment, slots_.current(segment), offset_bytes, out);
}

PendingPtr Segments::Write(std::string_view kind, int32_t flat_group,
                           uint64_t offset_bytes,
                           std::span<const std::byte> data) {
  const int32_t segment = Require(kind, flat_group);
  return WriteSlot(segment, slots_.current(segment), offset_bytes, data);
}

void Segments::CopySlot(int32_t segment, int32_t from, int32_t to) const {
  const std::span<std::byte> source = MemoryOf(segment, from);
  const uint64_t size = segments_[static_cast<size_t>(segment)].size_bytes;
  if (!source.empty()) {
    WriteSlot(segment, to, 0, source)->Wait();
    return;
  }
  const AlignedBytes buffer(std::min(kCopyBytes, static_cast<size_t>(size)));
  for (uint64_t done = 0; done < size;) {
    const std::span<std::byte> part = buffer.span().first(
        std::min(buffer.size(), static_cast<size_t>(size - done)));
    ReadSlot(segment, from, done, part)->Wait();
    WriteSlot(segment, to, done, part)->Wait();
    done += part.size();
  }
}

void Segments::BeginPartialWrite(std::string_view kind, int32_t flat_group) {
  const int32_t segment = Require(kind, flat_group);
  const std::optional<int32_t> to = slots_.BeginPartialWrite(segment);
  if (!to.has_value()) return;
  try {
    CopySlot(segment, slots_.current(segment), *to);
  } catch (...) {
    slots_.EndCopy(segment, false);
    throw;
  }
  slots_.EndCopy(segment, true);
}

void Segments::BeginUpdate(std::string_view kind, int32_t flat_group) {
  slots_.BeginUpdate(Require(kind, flat_group));
}

int32_t Segments::NextSlot(int32_t segment) const {
  const int32_t slot = slots_.next(segment);
  if (slot < 0) {
    throw Error(ErrorCode::kInternal,
                "a segment is written whose update was not begun");
  }
  return slot;
}

std::span<std::byte> Segments::next_bytes(std::string_view kind,
                                          int32_t flat_group) const {
  const int32_t segment = Find(kind, flat_group);
  if (segment < 0) return {};
  return MemoryOf(segment, NextSlot(segment));
}

PendingPtr Segments::WriteNext(std::string_view kind, int32_t flat_group,
                               uint64_t offset_bytes,
                               std::span<const std::byte> data) {
  const int32_t segment = Require(kind, flat_group);
  return WriteSlot(segment, NextSlot(segment), offset_bytes, data);
}

void Segments::CommitUpdates() { slots_.CommitUpdates(); }

void Segments::DropUpdates() { slots_.DropUpdates(); }

int32_t Segments::updates_before_wait(std::string_view kind,
                                      int32_t flat_group) const {
  return slots_.updates_before_wait(Require(kind, flat_group));
}

PinnedSegment Segments::Pin(std::string_view kind, int32_t flat_group,
                            PinPurpose purpose) {
  return {*this, Require(kind, flat_group), purpose};
}

PinnedSegment::PinnedSegment(Segments& segments, int32_t segment,
                             PinPurpose purpose)
    : segments_(&segments),
      segment_(segment),
      slot_(segments.slots_.Pin(segment, purpose)),
      purpose_(purpose) {}

PinnedSegment::PinnedSegment(PinnedSegment&& other) noexcept
    : segments_(std::exchange(other.segments_, nullptr)),
      segment_(other.segment_),
      slot_(other.slot_),
      purpose_(other.purpose_) {}

PinnedSegment& PinnedSegment::operator=(PinnedSegment&& other) noexcept {
  if (this == &other) return *this;
  Release();
  segments_ = std::exchange(other.segments_, nullptr);
  segment_ = other.segment_;
  slot_ = other.slot_;
  purpose_ = other.purpose_;
  return *this;
}

PinnedSegment::~PinnedSegment() { Release(); }

void PinnedSegment::Release() {
  if (segments_ == nullptr) return;
  segments_->slots_.Unpin(segment_, slot_, purpose_);
  segments_ = nullptr;
}

std::span<std::byte> PinnedSegment::memory() const {
  return segments_->MemoryOf(segment_, slot_);
}

PendingPtr PinnedSegment::Read(uint64_t offset_bytes,
                               std::span<std::byte> out) const {
  return segments_->ReadSlot(segment_, slot_, offset_bytes, out);
}

}  // namespace muonstore
