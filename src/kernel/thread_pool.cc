#include "muonstore/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// One ParallelFor: what is left of it and how it went.
struct Loop {
  const std::function<void(int64_t)>* body = nullptr;
  int64_t num_items = 0;
  int64_t next_item = 0;
  int64_t num_running = 0;
  int64_t failed_item = std::numeric_limits<int64_t>::max();
  std::exception_ptr failure;
};

}  // namespace

class ThreadPool::Impl {
 public:
  Impl() : owner_pid_(::getpid()) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  static std::shared_ptr<Impl> Start(int num_workers) {
    auto impl = std::make_shared<Impl>();
    std::vector<std::thread>& workers = impl->workers_;
    try {
      for (int i = 0; i < num_workers; ++i) {
        workers.emplace_back([impl] { impl->Work(); });
      }
    } catch (const std::system_error& error) {
      const size_t num_started = workers.size();
      impl->Stop();
      throw Error(ErrorCode::kResourceExhausted,
                  StrCat("the system starts no more threads: ", error.what()),
                  {.expected = StrCat(num_workers + 1, " threads"),
                   .found = StrCat(num_started + 1)});
    }
    return impl;
  }

  bool forked() const { return ::getpid() != owner_pid_; }

  // Whether the current thread is inside an item of this pool.
  bool IsRunningHere() const {
    const std::thread::id here = std::this_thread::get_id();
    return here == caller_ || std::any_of(workers_.begin(), workers_.end(),
                                          [here](const std::thread& w) {
                                            return w.get_id() == here;
                                          });
  }

  void Run(int64_t num_items, const std::function<void(int64_t)>& body) {
    const std::lock_guard<std::mutex> one_at_a_time(loops_mutex_);
    Loop loop{.body = &body, .num_items = num_items};
    std::unique_lock<std::mutex> lock(mutex_);
    loop_ = &loop;
    caller_ = std::this_thread::get_id();
    work_.notify_all();
    RunItems(loop, lock);
    done_.wait(lock, [&loop] { return loop.num_running == 0; });
    caller_ = std::thread::id();
    loop_ = nullptr;
    lock.unlock();
    if (loop.failure) {
      std::rethrow_exception(loop.failure);
    }
  }

  void Stop() {
    if (forked()) {
      // A fork copies no threads: there is nothing to join, and any lock may be
      // held for ever.
      for (std::thread& worker : workers_) {
        worker.detach();
      }
      return;
    }
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& worker : workers_) {
      worker.join();
    }
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      work_.wait(lock, [this] { return stopping_ || HasItems(); });
      if (stopping_) {
        return;
      }
      Loop& loop = *loop_;
      RunItems(loop, lock);
      if (loop.num_running == 0) {
        done_.notify_one();
      }
    }
  }

  bool HasItems() const {
    return loop_ != nullptr && loop_->next_item < loop_->num_items;
  }

  // `lock` is held between items. The loop lives at least until no item runs
  // and the lock is released.
  void RunItems(Loop& loop, std::unique_lock<std::mutex>& lock) {
    while (loop.next_item < loop.num_items) {
      const int64_t item = loop.next_item++;
      ++loop.num_running;
      lock.unlock();
      std::exception_ptr failure;
      try {
        (*loop.body)(item);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      --loop.num_running;
      if (failure) {
        loop.next_item = loop.num_items;
        if (item < loop.failed_item) {
          loop.failed_item = item;
          loop.failure = failure;
        }
      }
    }
  }

  int owner_pid_;
  std::mutex loops_mutex_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable work_;
  std::condition_variable done_;
  Loop* loop_ = nullptr;
  bool stopping_ = false;
  // Who runs the current loop; read without the lock by threads that ask
  // whether it is them.
  std::atomic<std::thread::id> caller_;
  std::vector<std::thread> workers_;
};

ThreadPool::ThreadPool(int num_threads) : num_threads_(num_threads) {
  if (num_threads < 1 || num_threads > kMaxThreads) {
    throw Error(ErrorCode::kInvalidArgument,
                "a thread pool cannot have this many threads",
                {.expected = StrCat("1 to ", kMaxThreads),
                 .found = StrCat(num_threads)});
  }
  if (num_threads > 1) {
    impl_ = Impl::Start(num_threads - 1);
  }
}

ThreadPool::~ThreadPool() {
  if (impl_ != nullptr) {
    impl_->Stop();
  }
}

void ThreadPool::ParallelFor(int64_t num_items,
                             const std::function<void(int64_t)>& body) {
  if (impl_ == nullptr || num_items <= 1 || impl_->forked() ||
      impl_->IsRunningHere()) {
    for (int64_t item = 0; item < num_items; ++item) {
      body(item);
    }
    return;
  }
  impl_->Run(num_items, body);
}

}  // namespace muonstore
