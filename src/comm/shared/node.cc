#include "src/comm/shared/node.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/comm/shared/futex.h"

namespace muonstore::comm {
namespace {

using Clock = std::chrono::steady_clock;

// How long to sleep before a look at the peers' processes.
constexpr std::chrono::milliseconds kLook{10};
// Tries before sleeping, some microseconds: a peer that is about to answer is
// not slept upon. Without a yield, which on a busy machine costs more than the
// sleep that it saves.
constexpr int kTriesAwake = 200;

class WaitForRecords : public Steps {
 public:
  WaitForRecords(const Node& node, uint64_t number)
      : node_(node), number_(number) {}

  StepResult Step() override {
    while (next_ < node_.size() && Announced(next_)) {
      ++next_;
    }
    return next_ == node_.size() ? StepResult::kDone : StepResult::kStuck;
  }

  std::vector<int32_t> Blockers() const override {
    std::vector<int32_t> blockers;
    for (int32_t rank = next_; rank < node_.size(); ++rank) {
      if (!Announced(rank)) {
        blockers.push_back(rank);
      }
    }
    return blockers;
  }

 private:
  bool Announced(int32_t rank) const {
    return node_.control().rank(rank).announced.load(
               std::memory_order_acquire) >= number_;
  }

  const Node& node_;
  uint64_t number_;
  int32_t next_ = 0;
};

}  // namespace

// Since when nothing moved, and whose heart beat since.
class Node::Wait {
 public:
  explicit Wait(const Node& node) : node_(node) { Restart(); }

  void Restart() {
    since_ = Clock::now();
    tries_ = 0;
    heartbeats_.clear();
  }

  // True while there is no need to sleep yet.
  bool StayAwake() {
    if (tries_++ < kTriesAwake) {
      return true;
    }
    if (heartbeats_.empty()) {
      for (int32_t rank = 0; rank < node_.size(); ++rank) {
        heartbeats_.push_back(HeartbeatOf(rank));
      }
    }
    return false;
  }

  bool timed_out() const {
    return Clock::now() - since_ >= node_.membership_.timeout;
  }

  // Who is to blame among `blockers`: the first that shows no sign of life, or
  // else the first.
  int32_t Culprit(const std::vector<int32_t>& blockers) const {
    const auto silent = std::ranges::find_if(blockers, [this](int32_t rank) {
      return HeartbeatOf(rank) == heartbeats_[static_cast<size_t>(rank)];
    });
    return silent != blockers.end() ? *silent : blockers.front();
  }

 private:
  uint32_t HeartbeatOf(int32_t rank) const {
    return node_.control_.rank(rank).heartbeat.load(std::memory_order_relaxed);
  }

  const Node& node_;
  Clock::time_point since_;
  int tries_ = 0;
  std::vector<uint32_t> heartbeats_;
};

Node::Node(Membership membership)
    : membership_(std::move(membership)),
      control_(membership_.control->memory(), membership_.size),
      owner_pid_(::getpid()) {}

Node::~Node() {
  // A forked copy of the rank's process leaves nothing.
  if (::getpid() != owner_pid_) {
    return;
  }
  control_.rank(rank()).left.store(1, std::memory_order_release);
  for (int32_t peer = 0; peer < size(); ++peer) {
    Ring(peer);
  }
}

void Node::BeginCall(const CallRecord& record) {
  ++call_number_;
  call_kind_ = record.kind();
  ThrowIfFailed();
  std::ranges::copy(record.numbers(),
                    control_.record(rank(), call_number_).begin());
  control_.rank(rank()).announced.store(call_number_,
                                        std::memory_order_release);
  for (int32_t peer = 0; peer < size(); ++peer) {
    Ring(peer);
  }
  WaitForRecords wait(*this, call_number_);
  Run(wait);
  const auto disagreement =
      FindDisagreement(call_number_, size(), [this](int32_t peer) {
        return std::span<const uint64_t>(control_.record(peer, call_number_));
      });
  if (disagreement) {
    Fail(*disagreement);
  }
}

void Node::Run(Steps& steps) {
  RankState& mine = control_.rank(rank());
  Wait wait(*this);
  while (true) {
    mine.heartbeat.fetch_add(1, std::memory_order_relaxed);
    const uint32_t bell = mine.bell.load();
    StepResult result = steps.Step();
    if (result != StepResult::kDone) {
      ThrowIfFailed();
    }
    if (result == StepResult::kStuck) {
      if (wait.StayAwake()) {
        continue;
      }
      mine.asleep.store(1);
      FutexWait(mine.bell, bell, kLook);
      mine.asleep.store(0);
      RequireAlive(steps, result);
    }
    if (result == StepResult::kDone) {
      return;
    }
    if (result == StepResult::kMoved) {
      wait.Restart();
    } else if (wait.timed_out()) {
      FailForSilence(wait, steps.Blockers());
    }
  }
}

void Node::FailForSilence(const Wait& wait,
                          const std::vector<int32_t>& blockers) const {
  // Nobody is left to wait for: the last answer came just now.
  if (blockers.empty()) {
    return;
  }
  Fail(StrCat(Name(wait.Culprit(blockers)), " did not answer for ",
              membership_.timeout.count(), " ms in ", CallName(),
              ": it hangs or is slow; where slow is normal, set a longer "
              "timeout"));
}

// `result` is that of a step made after the look: a peer that left or ended
// when its work was done is no fault.
void Node::RequireAlive(Steps& steps, StepResult& result) const {
  const std::vector<int32_t> ended = membership_.peers->Ended();
  std::vector<int32_t> left;
  for (int32_t peer = 0; peer < size(); ++peer) {
    if (control_.rank(peer).left.load(std::memory_order_acquire) != 0) {
      left.push_back(peer);
    }
  }
  result = steps.Step();
  if (result != StepResult::kStuck) {
    return;
  }
  ThrowIfFailed();
  for (const int32_t peer : steps.Blockers()) {
    if (std::ranges::find(left, peer) != left.end()) {
      Fail(StrCat(Name(peer), " closed its communicator before ", CallName()));
    }
  }
  for (const int32_t peer : ended) {
    if (std::ranges::find(left, peer) == left.end()) {
      const bool in_call = control_.rank(peer).announced.load() >= call_number_;
      Fail(StrCat(Name(peer), in_call ? " died during " : " died before ",
                  CallName()));
    }
  }
}

void Node::Ring(int32_t peer) const {
  RankState& theirs = control_.rank(peer);
  // Sequentially consistent, as the sleeper's store and the kernel's compare
  // are: either it sees the new count, or we see that it sleeps.
  theirs.bell.fetch_add(1);
  if (theirs.asleep.load() != 0) {
    FutexWakeAll(theirs.bell);
  }
}

void Node::Break(std::string_view reason) const {
  Failure& failure = control_.failure();
  uint32_t none = Failure::kNone;
  if (failure.stage.compare_exchange_strong(none, Failure::kWriting)) {
    reason.copy(failure.text.data(), failure.text.size() - 1);
    failure.stage.store(Failure::kWritten, std::memory_order_release);
    for (int32_t peer = 0; peer < size(); ++peer) {
      Ring(peer);
    }
  }
}

void Node::Fail(std::string_view reason) const {
  Break(reason);
  ThrowFailure();
}

void Node::ThrowIfFailed() const {
  if (control_.failure().stage.load(std::memory_order_acquire) !=
      Failure::kNone) {
    ThrowFailure();
  }
}

void Node::ThrowFailure() const {
  const Failure& failure = control_.failure();
  // A rank that dies while it writes leaves no reason.
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
  while (failure.stage.load(std::memory_order_acquire) != Failure::kWritten) {
    if (Clock::now() > deadline) {
      throw Error(ErrorCode::kUnavailable,
                  "a peer died while it reported a failure");
    }
    std::this_thread::yield();
  }
  throw Error(ErrorCode::kUnavailable, failure.text.data());
}

std::string Node::Name(int32_t peer) const {
  return StrCat("rank ", peer, " (pid ", membership_.peers->pid(peer), ")");
}

std::string Node::CallName() const {
  return StrCat(CallKindName(call_kind_), " ", call_number_);
}

}  // namespace muonstore::comm
