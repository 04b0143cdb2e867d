// Reads and writes by threads, where there is no io_uring.
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "src/os/io/ring.h"
#include "src/os/os_error.h"

namespace muonstore::os {
namespace {

int32_t CarryOut(const RingEntry& entry) {
  const auto offset = static_cast<off_t>(entry.offset_bytes);
  const ssize_t result =
      entry.is_write ? ::pwrite(entry.fd, entry.data, entry.size_bytes, offset)
                     : ::pread(entry.fd, entry.data, entry.size_bytes, offset);
  return result < 0 ? -errno : static_cast<int32_t>(result);
}

class ThreadRing final : public Ring {
 public:
  // Fewer threads are slower, none is an error.
  void Start(int num_threads) {
    try {
      for (int i = 0; i < num_threads; ++i) {
        threads_.emplace_back([this] { Work(); });
      }
    } catch (const std::system_error& error) {
      if (threads_.empty()) {
        ThrowErrno(error.code().value(), "start a thread", "");
      }
    }
  }

  ~ThreadRing() override {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    has_work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return "threads"; }

  void Queue(const RingEntry& entry) override {
    const std::lock_guard lock(mutex_);
    entries_.push_back(entry);
  }

  int Submit() override {
    has_work_.notify_all();
    return 0;
  }

  int Wait(std::span<RingCompletion> out) override {
    std::unique_lock lock(mutex_);
    has_result_.wait(lock, [this] { return !results_.empty(); });
    size_t count = 0;
    while (count < out.size() && !results_.empty()) {
      out[count++] = results_.front();
      results_.pop_front();
    }
    return static_cast<int>(count);
  }

  int Wake() override {
    Complete({.id = kWakeId});
    return 0;
  }

  int num_buffers() const override { return 0; }
  int RegisterBuffer(int /*buffer*/, std::span<std::byte> /*memory*/) override {
    return ENOSYS;
  }

 private:
  void Complete(const RingCompletion& result) {
    const std::lock_guard lock(mutex_);
    results_.push_back(result);
    has_result_.notify_one();
  }

  void Work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      has_work_.wait(lock, [this] { return stops_ || !entries_.empty(); });
      if (entries_.empty()) return;
      const RingEntry entry = entries_.front();
      entries_.pop_front();
      lock.unlock();
      Complete({.id = entry.id, .result = CarryOut(entry)});
    }
  }

  std::mutex mutex_;
  std::condition_variable has_work_;
  std::condition_variable has_result_;
  std::deque<RingEntry> entries_;
  std::deque<RingCompletion> results_;
  bool stops_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Ring> MakeThreadRing(int num_threads) {
  auto ring = std::make_unique<ThreadRing>();
  ring->Start(num_threads);
  return ring;
}

}  // namespace muonstore::os
