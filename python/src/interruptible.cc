#include "python/src/interruptible.h"

#include <nanobind/stl/string.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <future>
#include <mutex>
#include <utility>

namespace muonstore::python {
namespace {

namespace nb = nanobind;

constexpr std::chrono::milliseconds kBeat{50};

// Unwinds the work; never seen by a caller.
class Stopped : public std::exception {};

struct Position {
  std::string what;
  uint64_t done = 0;
  uint64_t total = 0;

  friend bool operator==(const Position&, const Position&) = default;
};

// Where the work is, between its thread and the caller's.
class Reports {
 public:
  void Tell(const std::string& what, uint64_t done, uint64_t total) {
    ThrowIfStopped();
    const std::scoped_lock lock(mutex_);
    position_ = {what, done, total};
  }
  void ThrowIfStopped() const {
    if (stop_ && !is_past_) throw Stopped();
  }
  void Stop() {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }

  // On the work's thread: waits for LetPass or Stop.
  void AwaitPass() {
    std::unique_lock lock(mutex_);
    waits_ = true;
    changed_.wait(lock, [this] { return stop_ || is_past_; });
    if (!is_past_) throw Stopped();
  }
  bool waits() const { return waits_; }
  bool is_past() const { return is_past_; }
  void LetPass() {
    const std::scoped_lock lock(mutex_);
    is_past_ = true;
    changed_.notify_all();
  }

  Position position() const {
    const std::scoped_lock lock(mutex_);
    return position_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> waits_ = false;
  std::atomic<bool> is_past_ = false;
  Position position_;
};

// Throws what a signal handler raises, and what the callback does.
class Caller {
 public:
  Caller(const nb::object& callback, const Reports& reports)
      : callback_(callback), reports_(reports) {}

  void Look() {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (callback_.is_none()) return;
    Position now = reports_.position();
    if (now == told_) return;
    told_ = std::move(now);
    callback_(told_.what, told_.done, told_.total);
  }

 private:
  const nb::object& callback_;
  const Reports& reports_;
  Position told_;
};

}  // namespace

std::function<void(uint64_t, uint64_t)> Watch::Progress(
    std::string what) const {
  return [tell = progress, what = std::move(what)](
             uint64_t done, uint64_t total) { tell(what, done, total); };
}

void RunInterruptible(const nb::object& callback,
                      const std::function<void(const Watch&)>& work) {
  Reports reports;
  const Watch watch{
      .progress = [&](const std::string& what, uint64_t done,
                      uint64_t total) { reports.Tell(what, done, total); },
      .check = [&] { reports.ThrowIfStopped(); },
      .last_call = [&] { reports.AwaitPass(); }};
  Caller caller(callback, reports);
  std::future<void> running =
      std::async(std::launch::async, [&] { work(watch); });
  const auto ends_within = [&](std::chrono::milliseconds time) {
    const nb::gil_scoped_release release;
    return running.wait_for(time) == std::future_status::ready;
  };
  try {
    while (!ends_within(kBeat)) {
      if (reports.is_past()) continue;
      // Asked first: what is told then is how far the work has come.
      const bool waits = reports.waits();
      caller.Look();
      if (waits) reports.LetPass();
    }
    running.get();
    if (!reports.is_past()) caller.Look();
  } catch (const nb::python_error&) {
    reports.Stop();
    const nb::gil_scoped_release release;
    if (running.valid()) running.wait();
    throw;
  }
}

}  // namespace muonstore::python
