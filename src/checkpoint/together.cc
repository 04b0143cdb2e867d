#include "src/checkpoint/together.h"

#include <array>
#include <chrono>
#include <exception>
#include <future>
#include <new>

#include "src/base/str.h"
#include "src/checkpoint/shared_error.h"
#include "src/store/agreement.h"

namespace muonstore {
namespace {

constexpr std::chrono::milliseconds kBeat{100};

// Whatever goes wrong: the other ranks must hear of it.
std::optional<Error> CaughtAll(const std::function<void()>& run) {
  try {
    return Caught(run);
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  }
}

// This rank's part, on a thread of its own.
class Part {
 public:
  explicit Part(const std::function<void(const StopFlag&)>& run)
      : running_(std::async(std::launch::async, [this, &run] {
          return CaughtAll([&] { run(stop_); });
        })) {}
  ~Part() {
    Stop();
    if (running_.valid()) running_.wait();
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  void Stop() { stop_ = true; }

  // Waits for a beat at most.
  bool EndsInTime() {
    if (!ended_ && running_.wait_for(kBeat) == std::future_status::ready) {
      const std::optional<Error> error = running_.get();
      // What a part that was told to stop throws is a consequence.
      if (!stop_) error_ = error;
      ended_ = true;
    }
    return ended_;
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  StopFlag stop_ = false;
  bool ended_ = false;
  std::optional<Error> error_;
  // Last: the thread uses the others.
  std::future<std::optional<Error>> running_;
};

}  // namespace

std::optional<Error> RunTogether(
    Communicator& ranks, const std::function<void(const StopFlag&)>& part) {
  Part mine(part);
  while (true) {
    const bool ended = mine.EndsInTime();
    // The least of all: 0 where one runs still, 0 where one has failed.
    std::array<int64_t, 2> state = {ended ? 1 : 0, mine.error() ? 0 : 1};
    ranks.AllReduce(state, ReduceOp::kMin);
    if (state[1] == 0) mine.Stop();
    if (state[0] == 1) return SharedError(ranks, mine.error());
  }
}

void ThrowIfStopped(const StopFlag& stop) {
  if (stop) {
    throw Error(ErrorCode::kUnavailable,
                "stopped, since another rank failed or is gone");
  }
}

}  // namespace muonstore
