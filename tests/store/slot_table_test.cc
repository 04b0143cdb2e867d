#include "src/store/slot_table.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

constexpr bool kInPlace = true;

TEST(SlotTableTest, WithoutSnapshotsUpdatesAreMadeInPlace) {
  SlotTable table;
  const int32_t segment = table.Add(1, kInPlace);
  EXPECT_EQ(table.next(segment), -1);
  table.BeginUpdate(segment);
  EXPECT_EQ(table.next(segment), 0);
  table.CommitUpdates();
  EXPECT_EQ(table.current(segment), 0);
  EXPECT_EQ(table.next(segment), -1);
  EXPECT_EQ(table.BeginPartialWrite(segment), std::nullopt);
}

TEST(SlotTableTest, APinnedSlotIsNotWritten) {
  SlotTable table;
  const int32_t segment = table.Add(1, kInPlace);
  ASSERT_EQ(table.AddSlot(segment), 1);
  EXPECT_EQ(table.Pin(segment, PinPurpose::kSnapshot), 0);
  table.BeginUpdate(segment);
  EXPECT_EQ(table.next(segment), 1);
  EXPECT_EQ(table.current(segment), 0);
  table.CommitUpdates();
  EXPECT_EQ(table.current(segment), 1);
  // The new generation is pinned by nobody.
  table.BeginUpdate(segment);
  EXPECT_EQ(table.next(segment), 1);
  table.CommitUpdates();
  // The next snapshot pins the spare slot; the first one is free again.
  table.Unpin(segment, 0, PinPurpose::kSnapshot);
  EXPECT_EQ(table.Pin(segment, PinPurpose::kSnapshot), 1);
  table.BeginUpdate(segment);
  EXPECT_EQ(table.next(segment), 0);
}

TEST(SlotTableTest, ADroppedUpdateChangesNothing) {
  SlotTable table;
  const int32_t segment = table.Add(2, !kInPlace);
  table.BeginUpdate(segment);
  EXPECT_EQ(table.next(segment), 1);
  table.DropUpdates();
  EXPECT_EQ(table.current(segment), 0);
  EXPECT_EQ(table.next(segment), -1);
  table.CommitUpdates();
  EXPECT_EQ(table.current(segment), 0);
}

TEST(SlotTableTest, UpdatesOfWhatIsNotMemoryAlternate) {
  SlotTable table;
  const int32_t segment = table.Add(2, !kInPlace);
  for (const int32_t expected : {1, 0, 1}) {
    table.BeginUpdate(segment);
    EXPECT_EQ(table.next(segment), expected);
    table.CommitUpdates();
  }
  table.AddSlot(segment);
  EXPECT_EQ(table.Pin(segment, PinPurpose::kSnapshot), 1);
  for (const int32_t expected : {0, 2, 0, 2}) {
    table.BeginUpdate(segment);
    EXPECT_EQ(table.next(segment), expected);
    table.CommitUpdates();
  }
}

TEST(SlotTableTest, OneSlotIsUpdatedInPlaceWhereverItIs) {
  SlotTable table;
  const int32_t segment = table.Add(1, !kInPlace);
  table.BeginUpdate(segment);
  EXPECT_EQ(table.next(segment), 0);
}

TEST(SlotTableTest, PartialWritesCopyWhatIsPinned) {
  SlotTable table;
  const int32_t segment = table.Add(1, kInPlace);
  table.AddSlot(segment);
  table.Pin(segment, PinPurpose::kSnapshot);
  EXPECT_EQ(table.BeginPartialWrite(segment), 1);
  table.EndCopy(segment, false);
  EXPECT_EQ(table.current(segment), 0);
  EXPECT_EQ(table.BeginPartialWrite(segment), 1);
  table.EndCopy(segment, true);
  EXPECT_EQ(table.current(segment), 1);
  EXPECT_EQ(table.BeginPartialWrite(segment), std::nullopt);
}

TEST(SlotTableTest, WhatALeaseReadsIsNotGivenToAnotherGeneration) {
  SlotTable table;
  const int32_t segment = table.Add(1, kInPlace);
  table.AddSlot(segment);
  table.AddSlot(segment);
  EXPECT_EQ(table.Pin(segment, PinPurpose::kLease), 0);
  // Other tensors of the segment are written in place under a lease.
  EXPECT_EQ(table.BeginPartialWrite(segment), std::nullopt);
  table.Pin(segment, PinPurpose::kSnapshot);
  EXPECT_EQ(table.BeginPartialWrite(segment), 1);
  table.EndCopy(segment, true);
  table.Unpin(segment, 0, PinPurpose::kSnapshot);
  table.Pin(segment, PinPurpose::kSnapshot);
  // Slot 0 is still read.
  EXPECT_EQ(table.BeginPartialWrite(segment), 2);
}

TEST(SlotTableTest, EveryPinCounts) {
  SlotTable table;
  const int32_t segment = table.Add(1, kInPlace);
  table.AddSlot(segment);
  table.Pin(segment, PinPurpose::kSnapshot);
  table.Pin(segment, PinPurpose::kSnapshot);
  table.Unpin(segment, 0, PinPurpose::kSnapshot);
  table.BeginUpdate(segment);
  EXPECT_EQ(table.next(segment), 1);
}

TEST(SlotTableTest, TellsWhenAnUpdateWouldWait) {
  SlotTable table;
  const int32_t host = table.Add(1, kInPlace);
  EXPECT_EQ(table.updates_before_wait(host), 2);
  table.Pin(host, PinPurpose::kSnapshot);
  EXPECT_EQ(table.updates_before_wait(host), 0);
  table.AddSlot(host);
  EXPECT_EQ(table.updates_before_wait(host), 2);

  const int32_t file = table.Add(2, !kInPlace);
  EXPECT_EQ(table.updates_before_wait(file), 2);
  table.Pin(file, PinPurpose::kSnapshot);
  EXPECT_EQ(table.updates_before_wait(file), 1);
  table.BeginUpdate(file);
  table.CommitUpdates();
  EXPECT_EQ(table.updates_before_wait(file), 1);
  table.Pin(file, PinPurpose::kSnapshot);
  EXPECT_EQ(table.updates_before_wait(file), 0);
  table.AddSlot(file);
  EXPECT_EQ(table.updates_before_wait(file), 1);
}

// A writer that has to wait goes on when the snapshot lets go, and not before:
// it would see `is_released` unset, or never be counted as waiting.
template <typename Write>
void ExpectWaits(SlotTable& table, int32_t segment, const Write& write) {
  const int32_t slot = table.Pin(segment, PinPurpose::kSnapshot);
  std::atomic<bool> is_released = false;
  std::atomic<bool> saw_released = false;
  const double before_s = table.waited_s();
  std::thread writer([&] {
    write();
    saw_released = is_released.load();
  });
  while (table.waited_s() == before_s) std::this_thread::yield();
  is_released = true;
  table.Unpin(segment, slot, PinPurpose::kSnapshot);
  writer.join();
  EXPECT_TRUE(saw_released);
  EXPECT_GT(table.waited_s(), before_s);
}

TEST(SlotTableTest, WritersWaitForSnapshots) {
  SlotTable table;
  const int32_t segment = table.Add(1, kInPlace);
  ExpectWaits(table, segment, [&] {
    table.BeginUpdate(segment);
    table.CommitUpdates();
  });
  ExpectWaits(table, segment, [&] {
    EXPECT_EQ(table.BeginPartialWrite(segment), std::nullopt);
  });
}

TEST(SlotTableTest, ASpareSlotEndsTheWaiting) {
  SlotTable table;
  const int32_t segment = table.Add(1, kInPlace);
  table.Pin(segment, PinPurpose::kSnapshot);
  std::thread writer([&] { table.BeginUpdate(segment); });
  while (table.waited_s() == 0) std::this_thread::yield();
  table.AddSlot(segment);
  writer.join();
  EXPECT_EQ(table.next(segment), 1);
}

}  // namespace
}  // namespace muonstore
