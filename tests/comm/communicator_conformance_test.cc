// The suite over every communicator that C++ can make by itself, at 1 to 4
// ranks: as forked processes, and as threads, which ThreadSanitizer sees.
#include <algorithm>
#include <array>
#include <ostream>
#include <utility>

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

enum class Kind { kSingle, kSharedMemory, kHierarchical };
enum class Ranks { kProcesses, kThreads };

struct Case {
  Kind kind;
  Ranks ranks;
  int32_t size;
  CommunicatorCheck check;
};

std::string NameOf(const Case& one) {
  constexpr std::array kKinds = {"Single", "SharedMemory", "Hierarchical"};
  return std::string(kKinds[static_cast<size_t>(one.kind)]) +
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
    for (const Kind kind : {Kind::kSharedMemory, Kind::kHierarchical}) {
      for (int32_t size = check.min_ranks; size <= 4; ++size) {
        cases.push_back({kind, Ranks::kProcesses, size, check});
        // A thread can neither be killed nor left hanging.
        if (check.last_rank == LastRank::kLives) {
          cases.push_back({kind, Ranks::kThreads, size, check});
        }
      }
    }
  }
  return cases;
}

// Nodes of two ranks; shared memory stands for the network between them.
constexpr int32_t kRanksOfNode = 2;

std::unique_ptr<Communicator> ConnectOne(const Case& one, int32_t rank,
                                         const std::string& rendezvous,
                                         milliseconds timeout) {
  if (one.kind == Kind::kSingle) {
    return MakeSingleCommunicator();
  }
  auto across = ConnectSharedMemory({.rank = rank,
                                     .size = one.size,
                                     .rendezvous = rendezvous,
                                     .timeout = timeout});
  if (one.kind == Kind::kSharedMemory) {
    return across;
  }
  const int32_t node = rank / kRanksOfNode;
  auto inside = ConnectSharedMemory(
      {.rank = rank % kRanksOfNode,
       .size = std::min(kRanksOfNode, one.size - node * kRanksOfNode),
       .rendezvous = rendezvous + "/" + std::to_string(node),
       .timeout = timeout});
  return MakeHierarchicalCommunicator(std::move(inside), std::move(across));
}

class CommunicatorConformance : public testing::TestWithParam<Case> {};

TEST_P(CommunicatorConformance, Holds) {
  const Case& one = GetParam();
  const std::string rendezvous = testutil::UniqueRendezvous();
  const auto rank_function = [&](int32_t rank) {
    one.check.run([&](milliseconds timeout) {
      return ConnectOne(one, rank, rendezvous, timeout);
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
