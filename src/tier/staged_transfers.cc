#include "src/tier/staged_transfers.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "src/os/os_error.h"

namespace muonstore::tier {
namespace {

uint64_t RoundDown(uint64_t bytes) {
  return bytes / kIoBlockBytes * kIoBlockBytes;
}
uint64_t RoundUp(uint64_t bytes) {
  return RoundDown(bytes + kIoBlockBytes - 1);
}

}  // namespace

class StagedTransfers::State {
 public:
  void Finish(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    is_done_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_done_; });
  }
  void WaitAndThrow() {
    Wait();
    if (error_ != nullptr) std::rethrow_exception(error_);
  }
  bool done() const {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_done_ = false;
  std::exception_ptr error_;
};

namespace {

template <typename State>
class StagedHandle final : public Pending {
 public:
  explicit StagedHandle(std::shared_ptr<State> state)
      : state_(std::move(state)) {}
  ~StagedHandle() override { state_->Wait(); }

  void Wait() override { state_->WaitAndThrow(); }
  bool done() const override { return state_->done(); }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace

StagedTransfers::~StagedTransfers() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    has_work_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

PendingPtr StagedTransfers::Start(const StagedJob& job) {
  auto state = std::make_shared<State>();
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) {
    buffers_ = AlignedBytes(kBufferBytes * kNumBuffers);
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error& error) {
      os::ThrowErrno(error.code().value(), "start a thread", job.file->path());
    }
  }
  queue_.push_back({job, state});
  has_work_.notify_one();
  return std::make_unique<StagedHandle<State>>(std::move(state));
}

void StagedTransfers::Run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    has_work_.wait(lock, [this] { return stops_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Queued next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      CarryOut(next.job);
    } catch (...) {
      error = std::current_exception();
    }
    next.state->Finish(std::move(error));
  }
}

void StagedTransfers::CarryOut(const StagedJob& job) {
  const uint64_t end = job.offset_bytes + job.size_bytes;
  // When an error leaves this early, destroying the handles waits.
  std::array<Step, kNumBuffers> steps;
  for (size_t i = 0; i < kNumBuffers; ++i) {
    steps[i].buffer = buffers_.data() + i * kBufferBytes;
  }
  size_t next = 0;
  for (uint64_t at = job.offset_bytes; at < end;) {
    Step& step = steps[next];
    next = (next + 1) % kNumBuffers;
    End(job, step);
    Begin(job, at, step);
    at = step.begin + step.size_bytes;
  }
  for (size_t i = 0; i < kNumBuffers; ++i) {
    End(job, steps[(next + i) % kNumBuffers]);
  }
}

void StagedTransfers::Begin(const StagedJob& job, uint64_t at, Step& step) {
  const uint64_t end = RoundUp(job.offset_bytes + job.size_bytes);
  step.begin = RoundDown(at);
  step.size_bytes = std::min<uint64_t>(kBufferBytes, end - step.begin);
  if (job.is_write) {
    FillForWrite(job, step);
    step.pending =
        job.file->StartWrite(step.begin, {step.buffer, step.size_bytes});
  } else {
    step.pending =
        job.file->StartRead(step.begin, {step.buffer, step.size_bytes});
  }
}

void StagedTransfers::FillForWrite(const StagedJob& job, const Step& step) {
  const uint64_t step_end = step.begin + step.size_bytes;
  const uint64_t job_end = job.offset_bytes + job.size_bytes;
  const uint64_t last = step_end - kIoBlockBytes;
  if (job.offset_bytes > step.begin) ReadBlock(job, step, step.begin);
  if (job_end < step_end) {
    const bool is_read = job.offset_bytes > step.begin && last == step.begin;
    if (job_end >= job.end_bytes && !is_read) {
      std::memset(step.buffer + (job_end - step.begin), 0, step_end - job_end);
    } else if (!is_read) {
      ReadBlock(job, step, last);
    }
  }
  const uint64_t from = std::max(job.offset_bytes, step.begin);
  const uint64_t to = std::min(job_end, step_end);
  std::memcpy(step.buffer + (from - step.begin),
              job.data + (from - job.offset_bytes), to - from);
}

void StagedTransfers::ReadBlock(const StagedJob& job, const Step& step,
                                uint64_t block) {
  job.file
      ->StartRead(block, {step.buffer + (block - step.begin), kIoBlockBytes})
      ->Wait();
}

void StagedTransfers::End(const StagedJob& job, Step& step) {
  if (step.pending == nullptr) return;
  std::exchange(step.pending, nullptr)->Wait();
  if (job.is_write) return;
  const uint64_t from = std::max(job.offset_bytes, step.begin);
  const uint64_t to =
      std::min(job.offset_bytes + job.size_bytes, step.begin + step.size_bytes);
  std::memcpy(job.data + (from - job.offset_bytes),
              step.buffer + (from - step.begin), to - from);
}

}  // namespace muonstore::tier
