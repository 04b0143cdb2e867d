#include "src/comm/worker.h"

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "muonstore/error.h"

namespace muonstore::comm {
namespace {

// One task's way from queued to done.
class Progress {
 public:
  void Finish(std::optional<Error> error) {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
      error_ = std::move(error);
    }
    changed_.notify_all();
  }

  // An Error each waiter gets a copy of, not an exception_ptr: its counts are
  // invisible to ThreadSanitizer.
  std::optional<Error> Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return error_;
  }

  bool done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::optional<Error> error_;
};

class TaskPending : public Pending {
 public:
  explicit TaskPending(std::shared_ptr<Progress> progress)
      : progress_(std::move(progress)) {}
  TaskPending(const TaskPending&) = delete;
  TaskPending& operator=(const TaskPending&) = delete;
  ~TaskPending() override { (void)progress_->Wait(); }

  void Wait() override {
    const std::optional<Error> error = progress_->Wait();
    if (error) {
      throw Error(*error);
    }
  }
  bool done() const override { return progress_->done(); }

 private:
  std::shared_ptr<Progress> progress_;
};

std::optional<Error> RunTask(const std::function<void()>& task) {
  try {
    task();
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::exception& error) {
    return Error(ErrorCode::kUnavailable, error.what());
  }
}

}  // namespace

struct Worker::Queue {
  struct Task {
    std::function<void()> run;
    std::shared_ptr<Progress> progress;
  };

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool stopping = false;
};

Worker::Worker() : owner_pid_(::getpid()), queue_(std::make_shared<Queue>()) {
  // Signals are for the program's own threads; the new one inherits the mask.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([queue = queue_] { Loop(*queue); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Worker::~Worker() {
  if (forked()) {
    // A fork copies no threads: there is nothing to join.
    thread_.detach();
    return;
  }
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->stopping = true;
  }
  queue_->changed.notify_all();
  thread_.join();
}

bool Worker::forked() const { return ::getpid() != owner_pid_; }

PendingPtr Worker::Post(std::function<void()> task) {
  if (forked()) {
    throw Error(ErrorCode::kInvalidArgument,
                "this communicator belongs to the process that this one was "
                "forked from: connect after the fork");
  }
  auto progress = std::make_shared<Progress>();
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->tasks.push_back({std::move(task), progress});
  }
  queue_->changed.notify_all();
  return std::make_unique<TaskPending>(std::move(progress));
}

void Worker::Loop(Queue& queue) {
  while (true) {
    Queue::Task task;
    {
      std::unique_lock lock(queue.mutex);
      queue.changed.wait(
          lock, [&] { return queue.stopping || !queue.tasks.empty(); });
      if (queue.tasks.empty()) {
        return;
      }
      task = std::move(queue.tasks.front());
      queue.tasks.pop_front();
    }
    std::optional<Error> error = RunTask(task.run);
    // What the task owns goes before its waiter goes on.
    task.run = nullptr;
    task.progress->Finish(std::move(error));
  }
}

}  // namespace muonstore::comm
