#include "src/store/slot_table.h"

#include <algorithm>
#include <chrono>

namespace muonstore {
namespace {

double NowS() {
  const std::chrono::duration<double> now =
      std::chrono::steady_clock::now().time_since_epoch();
  return now.count();
}

}  // namespace

int32_t SlotTable::Add(int32_t num_slots, bool in_place) {
  const std::lock_guard lock(mutex_);
  Segment& segment = segments_.emplace_back();
  segment.slots.resize(static_cast<size_t>(num_slots));
  segment.in_place = in_place;
  return static_cast<int32_t>(segments_.size()) - 1;
}

int32_t SlotTable::AddSlot(int32_t segment) {
  const std::lock_guard lock(mutex_);
  at(segment).slots.emplace_back();
  unpinned_.notify_all();
  return static_cast<int32_t>(at(segment).slots.size()) - 1;
}

SlotTable::Segment& SlotTable::at(int32_t segment) {
  return segments_[static_cast<size_t>(segment)];
}

const SlotTable::Segment& SlotTable::at(int32_t segment) const {
  return segments_[static_cast<size_t>(segment)];
}

int32_t SlotTable::current(int32_t segment) const {
  const std::lock_guard lock(mutex_);
  return at(segment).current;
}

int32_t SlotTable::next(int32_t segment) const {
  const std::lock_guard lock(mutex_);
  return at(segment).next;
}

bool SlotTable::IsFree(const Segment& segment, size_t slot) {
  const Slot& use = segment.slots[slot];
  return static_cast<int32_t>(slot) != segment.current && use.snapshots == 0 &&
         use.leases == 0;
}

int32_t SlotTable::FreeSlot(const Segment& segment) {
  for (size_t i = 0; i < segment.slots.size(); ++i) {
    if (IsFree(segment, i)) return static_cast<int32_t>(i);
  }
  return -1;
}

int32_t SlotTable::PartialWriteSlot(const Segment& segment) {
  const Slot& current = segment.slots[static_cast<size_t>(segment.current)];
  return current.snapshots == 0 ? segment.current : FreeSlot(segment);
}

int32_t SlotTable::UpdateSlot(const Segment& segment) {
  if (segment.in_place || segment.slots.size() == 1) {
    return PartialWriteSlot(segment);
  }
  return FreeSlot(segment);
}

int32_t SlotTable::WaitFor(int32_t segment, int32_t (*choose)(const Segment&)) {
  std::unique_lock lock(mutex_);
  int32_t slot = choose(at(segment));
  if (slot < 0) {
    waited_s_ -= NowS();
    ++num_waiting_;
    unpinned_.wait(lock, [&] {
      slot = choose(at(segment));
      return slot >= 0;
    });
    waited_s_ += NowS();
    --num_waiting_;
  }
  at(segment).next = slot;
  return slot;
}

bool SlotTable::AwaitUpdates(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto can_begin = [&] {
    return std::all_of(
        segments_.begin(), segments_.end(),
        [](const Segment& segment) { return UpdateSlot(segment) >= 0; });
  };
  if (can_begin()) return true;
  waited_s_ -= NowS();
  ++num_waiting_;
  const bool done = unpinned_.wait_for(lock, timeout, can_begin);
  waited_s_ += NowS();
  --num_waiting_;
  return done;
}

void SlotTable::BeginUpdate(int32_t segment) {
  if (next(segment) >= 0) return;
  WaitFor(segment, UpdateSlot);
  const std::lock_guard lock(mutex_);
  updating_.push_back(segment);
}

void SlotTable::CommitUpdates() {
  const std::lock_guard lock(mutex_);
  for (const int32_t segment : updating_) {
    at(segment).current = at(segment).next;
    at(segment).next = -1;
  }
  updating_.clear();
  unpinned_.notify_all();
}

void SlotTable::DropUpdates() {
  const std::lock_guard lock(mutex_);
  for (const int32_t segment : updating_) at(segment).next = -1;
  updating_.clear();
}

std::optional<int32_t> SlotTable::BeginPartialWrite(int32_t segment) {
  const int32_t slot = WaitFor(segment, PartialWriteSlot);
  const std::lock_guard lock(mutex_);
  if (slot != at(segment).current) return slot;
  at(segment).next = -1;
  return std::nullopt;
}

void SlotTable::EndCopy(int32_t segment, bool copied) {
  const std::lock_guard lock(mutex_);
  Segment& of = at(segment);
  if (copied) of.current = of.next;
  of.next = -1;
}

int32_t SlotTable::Pin(int32_t segment, PinPurpose purpose) {
  const std::lock_guard lock(mutex_);
  Segment& of = at(segment);
  Slot& slot = of.slots[static_cast<size_t>(of.current)];
  ++(purpose == PinPurpose::kSnapshot ? slot.snapshots : slot.leases);
  return of.current;
}

void SlotTable::Unpin(int32_t segment, int32_t slot, PinPurpose purpose) {
  const std::lock_guard lock(mutex_);
  Slot& of = at(segment).slots[static_cast<size_t>(slot)];
  --(purpose == PinPurpose::kSnapshot ? of.snapshots : of.leases);
  unpinned_.notify_all();
}

int32_t SlotTable::updates_before_wait(int32_t segment) const {
  const std::lock_guard lock(mutex_);
  const Segment& of = at(segment);
  const bool pinned = of.slots[static_cast<size_t>(of.current)].snapshots > 0;
  int32_t num_free = 0;
  for (size_t i = 0; i < of.slots.size(); ++i) {
    num_free += IsFree(of, i) ? 1 : 0;
  }
  // One slot to which updates can go, and that is not pinned, is enough where
  // they are made in place; else they alternate between two.
  const bool in_place = of.in_place || of.slots.size() == 1;
  if (in_place) return !pinned || num_free > 0 ? 2 : 0;
  return std::min(2, num_free + (pinned ? 0 : 1));
}

double SlotTable::waited_s() const {
  const std::lock_guard lock(mutex_);
  return waited_s_ + num_waiting_ * NowS();
}

}  // namespace muonstore
