// Which slot of a segment is current, which one an update goes to, and which
// ones somebody still reads.
//
// What: each segment has slots: copies of equal size. One is current. A
//   snapshot pins it: nobody writes a pinned slot, an update goes to another
//   one, and where none is free the writer waits until a snapshot lets go. A
//   lease holds the slot that it reads: other tensors of the segment may still
//   be written in place, but the slot is not used for anything else.
// Ownership: plain state; knows neither memory nor files.
// Threads: any for pins and holds; updates and partial writes of a segment by
//   one thread at a time.

#ifndef MUONSTORE_SRC_STORE_SLOT_TABLE_H_
#define MUONSTORE_SRC_STORE_SLOT_TABLE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace muonstore {

// What for somebody reads a slot.
enum class PinPurpose {
  kSnapshot,
  kLease,
};

class SlotTable {
 public:
  // `in_place`: an update of a slot that no snapshot pins is made where it is;
  // else it goes to another slot, if there is one. Returns the segment's index;
  // slot 0 is current.
  int32_t Add(int32_t num_slots, bool in_place);
  // Returns the new slot.
  int32_t AddSlot(int32_t segment);

  int32_t current(int32_t segment) const;
  // Where the update goes that was begun; -1 where none was.
  int32_t next(int32_t segment) const;

  // Whether updates of all segments can begin without waiting; waits until
  // then, or for so long.
  bool AwaitUpdates(std::chrono::milliseconds timeout);
  // A step writes all of the segment. Waits.
  void BeginUpdate(int32_t segment);
  // Of all updates that were begun.
  void CommitUpdates();
  void DropUpdates();

  // Parts of the segment are to be written in its current slot. Where a
  // snapshot pins that, gives the slot to which the caller copies all of it
  // first; EndCopy makes the copy current, or gives it up. Waits.
  std::optional<int32_t> BeginPartialWrite(int32_t segment);
  void EndCopy(int32_t segment, bool copied);

  // The current slot, which is then pinned.
  int32_t Pin(int32_t segment, PinPurpose purpose);
  void Unpin(int32_t segment, int32_t slot, PinPurpose purpose);

  // How many updates can begin without waiting if nothing is unpinned; 2 stands
  // for any number.
  int32_t updates_before_wait(int32_t segment) const;
  // Seconds that writers waited for snapshots, all together; those who wait now
  // included.
  double waited_s() const;

 private:
  struct Slot {
    int32_t snapshots = 0;
    int32_t leases = 0;
  };
  struct Segment {
    std::vector<Slot> slots;
    bool in_place = true;
    int32_t current = 0;
    int32_t next = -1;
  };

  // These hold the mutex.
  Segment& at(int32_t segment);
  const Segment& at(int32_t segment) const;
  static bool IsFree(const Segment& segment, size_t slot);
  // A free slot, or -1.
  static int32_t FreeSlot(const Segment& segment);
  // Where an update or a partial write may go now, or -1.
  static int32_t UpdateSlot(const Segment& segment);
  static int32_t PartialWriteSlot(const Segment& segment);
  int32_t WaitFor(int32_t segment, int32_t (*choose)(const Segment&));

  mutable std::mutex mutex_;
  std::condition_variable unpinned_;
  std::vector<Segment> segments_;
  std::vector<int32_t> updating_;
  double waited_s_ = 0;  // Of those who wait now: less when they began.
  int32_t num_waiting_ = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_SLOT_TABLE_H_
