// A queue of reads and writes that somebody else carries out.
//
// What: entries are queued, submitted together, and come back as completions in
//   any order. The kernel's io_uring is one (uring.cc, the one door to
//   liburing), a few threads another (thread_ring.cc); tests have their own.
// Ownership: memory and descriptors of an entry are the caller's until its
//   completion.
// Threads: Queue, Submit and the buffers under the caller's lock; Wait on one
//   thread beside them.
// Failures: results as of system calls: a count, or a negative errno value.
#ifndef MUONSTORE_SRC_OS_IO_RING_H_
#define MUONSTORE_SRC_OS_IO_RING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace muonstore::os {

struct RingEntry {
  bool is_write = false;
  int fd = -1;
  uint64_t offset_bytes = 0;
  std::byte* data = nullptr;
  uint32_t size_bytes = 0;
  // That holds the memory; -1: none does.
  int buffer = -1;
  uint64_t id = 0;
};

struct RingCompletion {
  uint64_t id = 0;
  int32_t result = 0;
};

class Ring {
 public:
  // Of the completion that Wake() causes.
  static constexpr uint64_t kWakeId = ~uint64_t{0};

  virtual ~Ring() = default;
  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // For reports: "io_uring", "threads".
  virtual std::string_view name() const = 0;
  // Has room for as many entries as the ring is deep, with those that are not
  // completed yet.
  virtual void Queue(const RingEntry& entry) = 0;
  // Starts what is queued: 0, or an errno value, after which some entries may
  // still be queued.
  virtual int Submit() = 0;
  // Blocks until there is a completion; the count, or a negative errno value.
  virtual int Wait(std::span<RingCompletion> out) = 0;
  // Ends a Wait. 0 or an errno value, as Submit.
  virtual int Wake() = 0;

  // How many buffers can be registered at once.
  virtual int num_buffers() const = 0;
  // 0, or an errno value. An empty span takes the registration back.
  virtual int RegisterBuffer(int buffer, std::span<std::byte> memory) = 0;
};

// Null where the kernel refuses; `error` is then its errno value.
std::unique_ptr<Ring> MakeUring(int queue_depth, int* error);
std::unique_ptr<Ring> MakeThreadRing(int num_threads);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_IO_RING_H_
