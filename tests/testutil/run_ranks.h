// Runs a function as several ranks at once: processes by fork, or threads.
//
// What: one call a rank, with the rank's number. What a rank's GoogleTest
//   assertions, exceptions and signals say becomes a failure of the calling
//   test, with the rank in front. Ranks that are not done in time are killed,
//   and so is each rank whose parent dies.
// Ownership: plain values. Every process is waited for.
// Threads: fork while no other thread runs. Threads of `RunRankThreads` are
//   joined, however long they take.
// Failures: those of the ranks, added to the calling test.

#ifndef MUONSTORE_TESTS_TESTUTIL_RUN_RANKS_H_
#define MUONSTORE_TESTS_TESTUTIL_RUN_RANKS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace muonstore::testutil {

using RankFunction = std::function<void(int32_t rank)>;

struct RunRanksOptions {
  // For all of them together.
  std::chrono::milliseconds timeout{60'000};
  // Ranks that must end by SIGKILL: they kill themselves, or are killed once
  // all others have ended, so that a rank can hang.
  std::vector<int32_t> killed;
  // Called once all are started, with the process ids.
  std::function<void(const std::vector<int>& pids)> on_started;
};

void RunRanks(int32_t num_ranks, const RankFunction& rank_function,
              const RunRanksOptions& options = {});

// What became of a rank, for tests of failures.
struct RankOutcome {
  int exit_code = -1;  // -1: ended by `signal`.
  int signal = 0;
  bool timed_out = false;
  // Text of each failed assertion, and of an exception that left the function.
  std::string failures;

  bool ok() const { return exit_code == 0 && failures.empty(); }
};

// As RunRanks, but judges nothing.
std::vector<RankOutcome> TryRunRanks(int32_t num_ranks,
                                     const RankFunction& rank_function,
                                     const RunRanksOptions& options = {});

// The same in threads of this process.
void RunRankThreads(int32_t num_ranks, const RankFunction& rank_function);

// A meeting place that no other test uses: call it before the ranks start.
std::string UniqueRendezvous();

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_RUN_RANKS_H_
