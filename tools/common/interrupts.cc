#include "tools/common/interrupts.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <system_error>

namespace muonstore::tools {
namespace {

// Wakes the waiting thread for its end.
constexpr int kStopSignal = SIGUSR1;

// Signals that the process was started to ignore (nohup, a background job)
// stay ignored.
void AddUnlessIgnored(int signal, sigset_t& set) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler != SIG_IGN) sigaddset(&set, signal);
}

sigset_t WaitedSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, kStopSignal);
  AddUnlessIgnored(SIGINT, set);
  AddUnlessIgnored(SIGTERM, set);
  AddUnlessIgnored(SIGHUP, set);
  return set;
}

}  // namespace

Interrupts::Deferral::Deferral(Interrupts& interrupts)
    : interrupts_(interrupts) {
  interrupts_.deferred_.store(true);
  if (!interrupts_.thread_.joinable()) BlockSignals(SIG_BLOCK);
}

Interrupts::Deferral::~Deferral() {
  if (interrupts_.finished_.load()) return;
  interrupts_.deferred_.store(false);
  if (!interrupts_.thread_.joinable()) BlockSignals(SIG_UNBLOCK);
}

Interrupts::Interrupts() {
  BlockSignals(SIG_BLOCK);
  try {
    thread_ = std::thread([this] { Wait(); });
  } catch (const std::system_error&) {
    BlockSignals(SIG_UNBLOCK);
  }
}

Interrupts::~Interrupts() {
  if (!thread_.joinable()) return;
  stop_.store(true);
  // To this thread alone: nobody else sees it.
  pthread_kill(thread_.native_handle(), kStopSignal);
  thread_.join();
}

void Interrupts::ThrowIfInterrupted() const {
  int signal = pending_.load();
  if (!thread_.joinable() && deferred_.load()) {
    const sigset_t set = WaitedSignals();
    const struct timespec at_once {};
    signal = std::max(0, sigtimedwait(&set, nullptr, &at_once));
  }
  if (signal != 0) throw Interrupted(signal);
}

void Interrupts::BlockSignals(int how) {
  const sigset_t set = WaitedSignals();
  pthread_sigmask(how, &set, nullptr);
}

void Interrupts::Wait() {
  const sigset_t set = WaitedSignals();
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (stop_.load()) return;
    const bool is_second = finished_.load() && pending_.load() != 0;
    if (!deferred_.load() || is_second) _exit(128 + signal);
    pending_.store(signal);
  }
}

}  // namespace muonstore::tools
