#include "tools/common/interrupts.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

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
  return set;
}

}  // namespace

Interrupts::Interrupts() {
  const sigset_t set = WaitedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { Wait(); });
}

Interrupts::~Interrupts() {
  stop_.store(true);
  // To this thread alone: nobody else sees it.
  pthread_kill(thread_.native_handle(), kStopSignal);
  thread_.join();
}

void Interrupts::ThrowIfInterrupted() const {
  const int signal = pending_.load();
  if (signal != 0) throw Interrupted(signal);
}

void Interrupts::Wait() {
  const sigset_t set = WaitedSignals();
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (stop_.load()) return;
    if (!deferred_.load()) _exit(128 + signal);
    pending_.store(signal);
  }
}

}  // namespace muonstore::tools
