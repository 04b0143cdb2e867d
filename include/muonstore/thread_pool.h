// A fixed set of threads that share the items of one loop at a time.
//
// What: `ParallelFor` hands out item numbers in order to whichever thread is
//   free. Nothing in this library lets its results depend on who took what.
// Ownership: the pool owns its threads and joins them when it is destroyed.
// Threads: any thread may call ParallelFor; loops of different callers run one
//   after the other. A loop started from inside an item of the same pool runs
//   on the calling thread alone: loops are never nested. So do all loops in a
//   process that was forked off, where the threads are not; it may destroy the
//   pool.
// Failures: Error(kInvalidArgument) for fewer than one thread or more than
//   kMaxThreads; Error(kResourceExhausted) where the OS starts no more threads.
//   What an item
//   throws comes out of ParallelFor: that of the smallest item that threw,
//   after every running item has ended; no further item is started.

#ifndef MUONSTORE_THREAD_POOL_H_
#define MUONSTORE_THREAD_POOL_H_

#include <cstdint>
#include <functional>
#include <memory>

namespace muonstore {

class ThreadPool {
 public:
  // More are a mistake, which would take minutes to fail.
  static constexpr int kMaxThreads = 4096;

  // `num_threads` includes the thread that calls ParallelFor, so that a pool of
  // one starts none and runs every loop inline.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // Calls body(item) once for every item in [0, num_items) and returns when all
  // have ended. What the items wrote is then visible to the caller.
  void ParallelFor(int64_t num_items, const std::function<void(int64_t)>& body);

 private:
  class Impl;

  int num_threads_;
  // The threads have a share, too: in a forked copy of the process, where they
  // are gone, nobody destroys what they slept on.
  std::shared_ptr<Impl> impl_;
};

}  // namespace muonstore

#endif  // MUONSTORE_THREAD_POOL_H_
