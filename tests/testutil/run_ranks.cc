#include "tests/testutil/run_ranks.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "src/os/file_descriptor.h"

namespace muonstore::testutil {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailedExitCode = 1;

// Sends the text of failed assertions to the parent.
class FailureSender : public ::testing::EmptyTestEventListener {
 public:
  explicit FailureSender(int fd) : fd_(fd) {}

  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed()) {
      const char* file = result.file_name();
      Send((file != nullptr ? std::string(file) : "unknown file") + ":" +
           std::to_string(result.line_number()) + ": " + result.message());
    }
  }

  void Send(std::string text) const {
    text += '\n';
    size_t sent = 0;
    while (sent < text.size()) {
      const ssize_t count =
          ::write(fd_, text.data() + sent, text.size() - sent);
      if (count < 0 && errno != EINTR) {
        return;
      }
      sent += count > 0 ? static_cast<size_t>(count) : 0;
    }
  }

 private:
  int fd_;
};

// Runs in the child; never returns into the parent's code.
[[noreturn]] void BeRank(int32_t rank, const RankFunction& rank_function,
                         int failures_fd, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) {
    ::_exit(kFailedExitCode);
  }
  auto sender = std::make_unique<FailureSender>(failures_fd);
  const FailureSender& out = *sender;
  // The listeners own it from here on.
  ::testing::UnitTest::GetInstance()->listeners().Append(sender.release());
  bool threw = true;
  try {
    rank_function(rank);
    threw = false;
  } catch (const std::exception& error) {
    out.Send(std::string("exception: ") + error.what());
  } catch (...) {
    out.Send("exception of unknown type");
  }
  std::fflush(nullptr);
  // No destructors of the parent's objects, no second end of the test program.
  ::_exit(threw || ::testing::Test::HasFailure() ? kFailedExitCode : 0);
}

struct Child {
  pid_t pid = -1;
  bool must_die = false;
  os::FileDescriptor failures;
  RankOutcome outcome;
};

Child StartRank(int32_t rank, const RankFunction& rank_function) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) {
    throw std::runtime_error("cannot open a pipe");
  }
  Child child;
  child.failures = os::FileDescriptor(ends[0]);
  const os::FileDescriptor write_end(ends[1]);
  const pid_t parent = ::getpid();
  std::fflush(nullptr);
  child.pid = ::fork();
  if (child.pid < 0) {
    throw std::runtime_error("cannot fork");
  }
  if (child.pid == 0) {
    BeRank(rank, rank_function, write_end.get(), parent);
  }
  return child;
}

// Reads what is there; closes the pipe at its end.
void ReadFailures(Child& child) {
  std::array<char, 4096> buffer{};
  const ssize_t count =
      ::read(child.failures.get(), buffer.data(), buffer.size());
  if (count > 0) {
    child.outcome.failures.append(buffer.data(), static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    child.failures.Close();
  }
}

bool IsDue(const RunRanksOptions& options, int32_t rank) {
  return std::ranges::find(options.killed, rank) != options.killed.end();
}

// Ranks that were to die, once nobody needs them any more.
void KillTheDue(std::vector<Child>& children) {
  const bool needed = std::ranges::any_of(children, [](const Child& child) {
    return child.failures.valid() && !child.must_die;
  });
  for (Child& child : children) {
    if (!needed && child.failures.valid() && child.must_die) {
      ::kill(child.pid, SIGKILL);
    }
  }
}

// A rank holds its pipe open while it lives.
bool WaitForPipes(std::vector<Child>& children, Clock::time_point deadline) {
  while (true) {
    KillTheDue(children);
    std::vector<pollfd> polled;
    std::vector<Child*> owners;
    for (Child& child : children) {
      if (child.failures.valid()) {
        polled.push_back({child.failures.get(), POLLIN, 0});
        owners.push_back(&child);
      }
    }
    if (polled.empty()) {
      return true;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - Clock::now());
    if (left.count() <= 0) {
      return false;
    }
    ::poll(polled.data(), polled.size(), static_cast<int>(left.count()));
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) {
        ReadFailures(*owners[i]);
      }
    }
  }
}

void Reap(Child& child) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) {
    child.outcome.exit_code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    child.outcome.signal = WTERMSIG(status);
  }
}

void KillLeftovers(std::vector<Child>& children) {
  for (Child& child : children) {
    if (child.failures.valid()) {
      child.outcome.timed_out = true;
      ::kill(child.pid, SIGKILL);
    }
  }
}

std::string Describe(const RankOutcome& outcome) {
  if (outcome.timed_out) {
    return "was not done in time and was killed";
  }
  if (outcome.signal != 0) {
    return "ended by signal " + std::to_string(outcome.signal);
  }
  return "ended with exit code " + std::to_string(outcome.exit_code);
}

}  // namespace

std::vector<RankOutcome> TryRunRanks(int32_t num_ranks,
                                     const RankFunction& rank_function,
                                     const RunRanksOptions& options) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  std::vector<Child> children;
  children.reserve(static_cast<size_t>(num_ranks));
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    children.push_back(StartRank(rank, rank_function));
    children.back().must_die = IsDue(options, rank);
  }
  if (options.on_started) {
    std::vector<int> pids;
    pids.reserve(children.size());
    for (const Child& child : children) {
      pids.push_back(child.pid);
    }
    options.on_started(pids);
  }
  if (!WaitForPipes(children, deadline)) {
    KillLeftovers(children);
  }
  std::vector<RankOutcome> outcomes;
  for (Child& child : children) {
    Reap(child);
    outcomes.push_back(std::move(child.outcome));
  }
  return outcomes;
}

void RunRanks(int32_t num_ranks, const RankFunction& rank_function,
              const RunRanksOptions& options) {
  const std::vector<RankOutcome> outcomes =
      TryRunRanks(num_ranks, rank_function, options);
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
    const bool must_die = IsDue(options, rank);
    const bool as_expected = must_die ? outcome.signal == SIGKILL &&
                                            !outcome.timed_out &&
                                            outcome.failures.empty()
                                      : outcome.ok();
    if (!as_expected) {
      ADD_FAILURE() << "rank " << rank << " of " << num_ranks << " "
                    << Describe(outcome) << (must_die ? " (SIGKILL due)" : "")
                    << "\n"
                    << outcome.failures;
    }
  }
}

void RunRankThreads(int32_t num_ranks, const RankFunction& rank_function) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(num_ranks));
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    threads.emplace_back([rank, &rank_function] {
      try {
        rank_function(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": exception: " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

std::string UniqueRendezvous() {
  std::random_device source;
  return "test-" + std::to_string(::getpid()) + "-" + std::to_string(source()) +
         "-" + std::to_string(source());
}

}  // namespace muonstore::testutil
