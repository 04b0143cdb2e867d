// A file system whose scratch files tell what they are asked and fail on
// demand.
#ifndef MUONSTORE_TESTS_TIER_WATCHED_SCRATCH_H_
#define MUONSTORE_TESTS_TIER_WATCHED_SCRATCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/base/pending.h"
#include "tests/testutil/forwarding_file_system.h"

namespace muonstore {

struct ScratchTransfer {
  bool is_write = false;
  uint64_t offset_bytes = 0;
  const std::byte* data = nullptr;
  size_t size_bytes = 0;
};

class WatchedScratchSystem final : public testutil::ForwardingFileSystem {
 public:
  WatchedScratchSystem() : ForwardingFileSystem(PosixFileSystem()) {}

  std::unique_ptr<ScratchFile> CreateScratchFile(const std::string& directory,
                                                 uint64_t size_bytes) override {
    if (full) {
      throw Error(ErrorCode::kResourceExhausted, "no space left on device",
                  {.file = directory});
    }
    return std::make_unique<Watched>(
        *this, base().CreateScratchFile(directory, size_bytes));
  }
  uint64_t AvailableBytes(const std::string& path) override {
    return available ? *available : base().AvailableBytes(path);
  }

  std::vector<ScratchTransfer> transfers() {
    const std::lock_guard lock(mutex_);
    return transfers_;
  }
  // Transfers that nobody has waited for.
  int num_under_way() const { return num_under_way_.load(); }
  // The transfer that comes after so many others fails.
  void FailAfter(size_t count) {
    const std::lock_guard lock(mutex_);
    fail_at_ = transfers_.size() + count;
  }

  bool full = false;
  std::optional<uint64_t> available;

 private:
  class WatchedPending final : public Pending {
   public:
    WatchedPending(WatchedScratchSystem& owner, PendingPtr pending)
        : owner_(owner), pending_(std::move(pending)) {
      ++owner_.num_under_way_;
    }
    ~WatchedPending() override {
      if (!waited_) --owner_.num_under_way_;
    }
    void Wait() override {
      if (!std::exchange(waited_, true)) --owner_.num_under_way_;
      pending_->Wait();
    }
    bool done() const override { return pending_->done(); }

   private:
    WatchedScratchSystem& owner_;
    PendingPtr pending_;
    bool waited_ = false;
  };

  class Watched final : public ScratchFile {
   public:
    Watched(WatchedScratchSystem& owner, std::unique_ptr<ScratchFile> file)
        : owner_(owner), file_(std::move(file)) {}

    const std::string& path() const override { return file_->path(); }
    uint64_t size_bytes() const override { return file_->size_bytes(); }
    PendingPtr StartRead(uint64_t offset_bytes,
                         std::span<std::byte> out) override {
      if (owner_.Fails({false, offset_bytes, out.data(), out.size()})) {
        return Failed();
      }
      return Watch(file_->StartRead(offset_bytes, out));
    }
    PendingPtr StartWrite(uint64_t offset_bytes,
                          std::span<const std::byte> data) override {
      if (owner_.Fails({true, offset_bytes, data.data(), data.size()})) {
        return Failed();
      }
      return Watch(file_->StartWrite(offset_bytes, data));
    }

   private:
    PendingPtr Watch(PendingPtr pending) {
      return std::make_unique<WatchedPending>(owner_, std::move(pending));
    }
    PendingPtr Failed() const {
      return DoNow([this] {
        throw Error(ErrorCode::kUnavailable, "cannot move: the disk broke",
                    {.file = path()});
      });
    }

    WatchedScratchSystem& owner_;
    std::unique_ptr<ScratchFile> file_;
  };

  bool Fails(const ScratchTransfer& transfer) {
    const std::lock_guard lock(mutex_);
    transfers_.push_back(transfer);
    return transfers_.size() - 1 == fail_at_;
  }

  std::atomic<int> num_under_way_ = 0;
  std::mutex mutex_;
  std::vector<ScratchTransfer> transfers_;
  size_t fail_at_ = ~size_t{0};
};

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_TIER_WATCHED_SCRATCH_H_
