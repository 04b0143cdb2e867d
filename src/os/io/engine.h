// Asynchronous transfers of many files and threads through one bounded queue.
//
// What: transfers are cut into pieces of at most 1 MiB; as many as the queue is
//   deep are under way, the others wait their turn. A thread takes completions,
//   starts what waits and wakes who waits for a transfer, so that transfers go
//   on while their owner computes.
// Ownership: owns its ring and thread. Its destructor waits for what is under
//   way; handles may outlive it.
// Threads: any. After a fork the child must not use it.
// Failures: Start throws nothing; see Transfer for what Wait throws.
#ifndef MUONSTORE_SRC_OS_IO_ENGINE_H_
#define MUONSTORE_SRC_OS_IO_ENGINE_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include "muonstore/file_system.h"
#include "src/os/io/ring.h"
#include "src/os/io/transfer.h"

namespace muonstore::os {

struct IoOptions {
  int queue_depth = 32;
  size_t piece_bytes = size_t{1} << 20;
  // For tests: how a kernel, a limit or a file system that refuses looks.
  bool use_uring = true;
  bool use_direct = true;
  uint64_t max_registered_bytes = ~uint64_t{0};
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::unique_ptr<Ring> ring, const IoOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::string_view ring_name() const { return ring_->name(); }

  PendingPtr Start(const OpenFilePtr& file, const TransferRequest& request);

  // Registers as much as the kernel takes. The engine must be a shared one.
  std::unique_ptr<IoMemory> Register(std::span<std::byte> memory);
  void Unregister(std::span<const int> buffers);

 private:
  struct Buffer {
    const std::byte* begin = nullptr;
    size_t size_bytes = 0;
  };

  // All but Run with the lock held.
  void Fill();
  void SubmitAll();
  void Take(const RingCompletion& completion);
  void GiveUp(int error);
  bool is_idle() const;
  int BufferOf(const RingEntry& entry) const;
  // The number of the buffer; or -1, with an errno value.
  int RegisterOne(std::span<std::byte> memory, int* error);
  void Run();

  std::unique_ptr<Ring> ring_;
  IoOptions options_;
  std::mutex mutex_;
  std::deque<Piece> waiting_;
  std::vector<std::optional<Piece>> under_way_;
  std::vector<size_t> free_places_;
  std::vector<Buffer> buffers_;  // Those of no bytes are free.
  uint64_t registered_bytes_ = 0;
  std::condition_variable is_idle_;
  int broken_ = 0;  // The errno value that ended all work.
  std::thread thread_;
};

// By io_uring, or by threads where that is refused, which the log then says.
std::shared_ptr<Engine> MakeEngine(const IoOptions& options);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_IO_ENGINE_H_
