// A thread that does what it is given, in order.
//
// Ownership: tasks own what they use. The destructor does what is queued first.
// Threads: `Post` from one thread at a time. The worker takes no signals.
// Failures: a task's Error is thrown by its handle's Wait. In a process that
// was
//   forked off, where the thread does not exist, Post throws
//   Error(kInvalidArgument).
#ifndef MUONSTORE_SRC_COMM_WORKER_H_
#define MUONSTORE_SRC_COMM_WORKER_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "muonstore/pending.h"

namespace muonstore::comm {

// One task's way from queued to done.
class Progress;

class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  PendingPtr Post(std::function<void()> task);
  // Whether this is a forked copy of the process that made the worker.
  bool forked() const;

 private:
  struct Task {
    std::function<void()> run;
    std::shared_ptr<Progress> progress;
  };

  void Loop();

  int owner_pid_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_WORKER_H_
