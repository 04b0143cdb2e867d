#include <gtest/gtest.h>

#include "muonstore/communicator.h"
#include "muonstore/error.h"
#include "tests/conformance/hierarchical_check.h"
#include "tests/testutil/run_ranks.h"

namespace muonstore {
namespace {

// 2 nodes of 2 ranks; shared memory that nobody publishes to is the network.
TEST(Hierarchical, BytesForTheOwnNodeStayThere) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRanks(4, [&](int32_t rank) {
    auto across =
        ConnectSharedMemory({.rank = rank, .size = 4, .rendezvous = name});
    auto inside =
        ConnectSharedMemory({.rank = rank % 2,
                             .size = 2,
                             .rendezvous = name + std::to_string(rank / 2)});
    conformance::CheckBytesStayOnTheNode(std::move(inside), std::move(across),
                                         2);
  });
}

// The order of the ranks inside a node is free.
TEST(Hierarchical, NodesMayCountTheirRanksDifferently) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRankThreads(4, [&](int32_t rank) {
    auto across =
        ConnectSharedMemory({.rank = rank, .size = 4, .rendezvous = name});
    auto inside =
        ConnectSharedMemory({.rank = 1 - rank / 2,
                             .size = 2,
                             .rendezvous = name + std::to_string(rank % 2)});
    const auto comm =
        MakeHierarchicalCommunicator(std::move(inside), std::move(across));
    const int64_t own = 100 + rank;
    std::vector<int64_t> all(4);
    ExchangePlan plan;
    for (int32_t peer = 0; peer < 4; ++peer) {
      plan.sends.push_back({peer, std::as_bytes(std::span(&own, 1))});
      plan.receives.push_back(
          {peer, std::as_writable_bytes(
                     std::span(all).subspan(static_cast<size_t>(peer), 1))});
    }
    comm->Exchange(plan)->Wait();
    EXPECT_EQ(all, (std::vector<int64_t>{100, 101, 102, 103}));
  });
}

TEST(Hierarchical, RefusesCommunicatorsThatDoNotFit) {
  const std::string name = testutil::UniqueRendezvous();
  testutil::RunRankThreads(2, [&](int32_t rank) {
    auto inside =
        ConnectSharedMemory({.rank = rank, .size = 2, .rendezvous = name});
    try {
      // Two neighbours that both are the only rank of all.
      (void)MakeHierarchicalCommunicator(std::move(inside),
                                         MakeSingleCommunicator());
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  });
}

}  // namespace
}  // namespace muonstore
