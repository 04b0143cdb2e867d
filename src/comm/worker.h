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

#include <functional>
#include <memory>
#include <thread>

#include "muonstore/pending.h"

namespace muonstore::comm {

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
  struct Queue;

  static void Loop(Queue& queue);

  int owner_pid_;
  // The thread has a share as well: in a forked copy, where the thread is gone,
  // nobody destroys what it sleeps on.
  std::shared_ptr<Queue> queue_;
  std::thread thread_;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_WORKER_H_
