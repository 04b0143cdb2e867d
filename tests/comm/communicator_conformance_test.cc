// The suite over every communicator that C++ can make by itself, at 1 to 4
// ranks: as forked processes, and as threads, which ThreadSanitizer sees.
#include <ostream>

#include <gtest/gtest.h>

#include "muonstore/communicator.h"
#include "tests/conformance/communicator_checks.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore {
namespace {

using conformance::CommunicatorCheck;
using conformance::Connect;
using conformance::LastRank;
using std::chrono::milliseconds;

enum class Kind { kSingle, kSharedMemory };
enum class Ranks { kProcesses, kThreads };

struct Case {
  Kind kind;
  Ranks ranks;
  int32_t size;
  CommunicatorCheck check;
};

std::string NameOf(const Case& one) {
  return std::string(one.kind == Kind::kSingle ? "Single" : "SharedMemory") +
         (one.ranks == Ranks::kThreads ? "Threads" : "Processes") +
         std::to_string(one.size) + one.check.name;
}

void PrintTo(const Case& one, std::ostream* out) { *out << NameOf(one); }

std::vector<Case> AllCases() {
  std::vector<CommunicatorCheck> checks = conformance::WorkingChecks();
  for (const CommunicatorCheck& check : conformance::FaultChecks()) {
    checks.push_back(check);
  }
  std::vector<Case> cases;
  for (const CommunicatorCheck& check : checks) {
    if (check.min_ranks == 1) {
      cases.push_back({Kind::kSingle, Ranks::kThreads, 1, check});
    }
    for (int32_t size = check.min_ranks; size <= 4; ++size) {
      cases.push_back({Kind::kSharedMemory, Ranks::kProcesses, size, check});
      // A thread can neither be killed nor left hanging.
      if (check.last_rank == LastRank::kLives) {
        cases.push_back({Kind::kSharedMemory, Ranks::kThreads, size, check});
      }
    }
  }
  return cases;
}

class CommunicatorConformance : public testing::TestWithParam<Case> {};

TEST_P(CommunicatorConformance, Holds) {
  const Case& one = GetParam();
  const std::string rendezvous = testutil::UniqueRendezvous();
  const auto rank_function = [&](int32_t rank) {
    one.check.run([&](milliseconds timeout) {
      return one.kind == Kind::kSingle
                 ? MakeSingleCommunicator()
                 : ConnectSharedMemory({.rank = rank,
                                        .size = one.size,
                                        .rendezvous = rendezvous,
                                        .timeout = timeout});
    });
  };
  if (one.ranks == Ranks::kThreads) {
    testutil::RunRankThreads(one.size, rank_function);
    return;
  }
  testutil::RunRanksOptions options;
  if (one.check.last_rank != LastRank::kLives) {
    options.killed = {one.size - 1};
  }
  testutil::RunRanks(one.size, rank_function, options);
}

std::string NameOfParam(const testing::TestParamInfo<Case>& one) {
  return NameOf(one.param);
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorConformance,
                         testing::ValuesIn(AllCases()), NameOfParam);

}  // namespace
}  // namespace muonstore
