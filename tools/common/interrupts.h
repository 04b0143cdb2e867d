// What happens at SIGINT, SIGTERM and SIGHUP (a session that went).
//
// What: while an Interrupts lives, a thread of its own waits for the signals
//   and ends the process at once with 128 + the signal's number (130 for
//   SIGINT). Inside a Deferral it only takes a note, so that whoever writes a
//   file can stop in order at the next ThrowIfInterrupted(). Once the work is
//   finished a signal does not turn it into a failure; a second one still ends
//   the process, which may hang in printing what it did.
// Ownership: make one in main, before any other thread: it blocks the signals
//   for all threads that follow.
// Threads: ThrowIfInterrupted may be called by any thread.
// Failures: none. Where the OS refuses a thread, the signals end the process as
//   they always do, and a Deferral holds them back on the calling thread.

#ifndef MUONSTORE_TOOLS_COMMON_INTERRUPTS_H_
#define MUONSTORE_TOOLS_COMMON_INTERRUPTS_H_

#include <atomic>
#include <exception>
#include <thread>

namespace muonstore::tools {

// Thrown by ThrowIfInterrupted; main turns it into the exit code.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}

  int exit_code() const { return 128 + signal_; }
  const char* what() const noexcept override { return "interrupted"; }

 private:
  int signal_;
};

class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  class Deferral {
   public:
    explicit Deferral(Interrupts& interrupts);
    ~Deferral();
    Deferral(const Deferral&) = delete;
    Deferral& operator=(const Deferral&) = delete;

   private:
    Interrupts& interrupts_;
  };

  // Throws Interrupted when a signal came during a Deferral.
  void ThrowIfInterrupted() const;
  // In a Deferral: what was to be done is done.
  void SetFinished() { finished_.store(true); }
  // During a Deferral, or after the work.
  bool was_signalled() const { return pending_.load() != 0; }

 private:
  void Wait();
  // Without a thread: blocks or unblocks the signals for the calling one.
  static void BlockSignals(int how);

  std::atomic<bool> deferred_{false};
  std::atomic<bool> finished_{false};
  std::atomic<int> pending_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_INTERRUPTS_H_
