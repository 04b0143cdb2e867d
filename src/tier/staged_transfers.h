// Reads and writes of ranges that are no whole blocks, by a buffer and a
// thread.
//
// What: one thread carries the jobs out one after the other. A write whose ends
//   are inside of blocks reads these first and writes them whole; since nobody
//   else does that, writes that share a block do not undo one another.
// Ownership: owns its thread and 2 MiB of buffers, made at the first job. Its
//   destructor carries out what is left. Files and memory of a job are the
//   caller's until it is done.
// Threads: any.
// Failures: what the file throws, out of the handle; Error(kResourceExhausted)
//   at the first job where no thread can be started.
#ifndef MUONSTORE_SRC_TIER_STAGED_TRANSFERS_H_
#define MUONSTORE_SRC_TIER_STAGED_TRANSFERS_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "muonstore/file_system.h"
#include "muonstore/pending.h"
#include "src/base/aligned_bytes.h"

namespace muonstore::tier {

struct StagedJob {
  ScratchFile* file = nullptr;
  bool is_write = false;
  uint64_t offset_bytes = 0;
  std::byte* data = nullptr;
  size_t size_bytes = 0;
  // Bytes from here to the end of their block are nobody's.
  uint64_t end_bytes = 0;
};

class StagedTransfers {
 public:
  StagedTransfers() = default;
  ~StagedTransfers();
  StagedTransfers(const StagedTransfers&) = delete;
  StagedTransfers& operator=(const StagedTransfers&) = delete;

  PendingPtr Start(const StagedJob& job);

 private:
  static constexpr size_t kBufferBytes = size_t{512} << 10;
  static constexpr size_t kNumBuffers = 4;

  class State;
  struct Queued {
    StagedJob job;
    std::shared_ptr<State> state;
  };
  // A part of a job and the buffer that it is in, or on its way.
  struct Step {
    uint64_t begin = 0;  // Of its first block.
    size_t size_bytes = 0;
    std::byte* buffer = nullptr;
    PendingPtr pending;
  };

  void Run();
  void CarryOut(const StagedJob& job);
  // Starts the step at `at`, the first byte of the job that it covers.
  void Begin(const StagedJob& job, uint64_t at, Step& step);
  void FillForWrite(const StagedJob& job, const Step& step);
  static void ReadBlock(const StagedJob& job, const Step& step, uint64_t block);
  static void End(const StagedJob& job, Step& step);

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<Queued> queue_;
  bool stops_ = false;
  AlignedBytes buffers_;
  std::thread thread_;
};

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_STAGED_TRANSFERS_H_
