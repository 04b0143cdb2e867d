#include "src/inspect/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace muonstore {
namespace {

// What the workers of one ParallelFor share.
class Run {
 public:
  Run(size_t count, const std::function<void(size_t)>& body)
      : count_(count), body_(body) {}

  void Work() {
    while (!failed_.load()) {
      const size_t i = next_.fetch_add(1);
      if (i >= count_) return;
      try {
        body_(i);
      } catch (...) {
        Fail(i, std::current_exception());
      }
    }
  }

  void Rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void Fail(size_t index, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_ || index < error_index_) {
      error_ = std::move(error);
      error_index_ = index;
    }
    failed_.store(true);
  }

  size_t count_;
  const std::function<void(size_t)>& body_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  std::exception_ptr error_;
  size_t error_index_ = 0;
};

// One less than `num_threads`, or as many as the OS gives: those that run do
// the work.
std::vector<std::jthread> StartHelpers(Run& run, size_t num_threads) {
  std::vector<std::jthread> threads;
  threads.reserve(num_threads);
  try {
    for (size_t t = 1; t < num_threads; ++t) {
      threads.emplace_back([&run] { run.Work(); });
    }
  } catch (const std::system_error&) {
    return threads;
  }
  return threads;
}

}  // namespace

void ParallelFor(size_t count, int32_t jobs,
                 const std::function<void(size_t)>& body) {
  Run run(count, body);
  {
    const size_t num_threads =
        std::min(count, static_cast<size_t>(std::max(jobs, 1)));
    const std::vector<std::jthread> threads = StartHelpers(run, num_threads);
    run.Work();
  }
  run.Rethrow();
}

void ByteProgress::Add(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  done_bytes_ += bytes;
  if (callback_) callback_(done_bytes_, total_bytes_);
}

}  // namespace muonstore
