// The threads that work on one matrix: a whole pool, or the caller alone.
//
// Ownership: a Team points at a pool that outlives it.
// Threads: one Run at a time.
// Failures: what a task throws, see thread_pool.h.

#ifndef MUONSTORE_SRC_KERNEL_TEAM_H_
#define MUONSTORE_SRC_KERNEL_TEAM_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>

#include "muonstore/thread_pool.h"

namespace muonstore {

class Team {
 public:
  // Gets the number of the task and of the worker that runs it: two tasks that
  // run at once have different workers.
  using Task = std::function<void(int64_t task, int worker)>;

  // The caller alone, as this worker.
  static Team Alone(int worker) { return Team(nullptr, worker); }
  static Team Of(ThreadPool& pool) { return Team(&pool, 0); }

  void Run(int64_t num_tasks, const Task& body) {
    if (pool_ == nullptr) {
      for (int64_t task = 0; task < num_tasks; ++task) {
        body(task, worker_);
      }
      return;
    }
    std::atomic<int64_t> next = 0;
    pool_->ParallelFor(std::min<int64_t>(num_tasks, pool_->num_threads()),
                       [&](int64_t worker) {
                         int64_t task = next++;
                         for (; task < num_tasks; task = next++) {
                           body(task, static_cast<int>(worker));
                         }
                       });
  }

 private:
  Team(ThreadPool* pool, int worker) : pool_(pool), worker_(worker) {}

  ThreadPool* pool_;
  int worker_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_KERNEL_TEAM_H_
