// Page-locking as asked, for each state kind by itself, and still so after a
// load: it fills the arenas and replaces none.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/load.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/fixtures.h"

namespace muonstore {
namespace {

using Addresses = std::map<std::string, const std::byte*>;

// Kinds that are not to be pinned; the others are.
const std::vector<StateKind> kUnpinned = {"momentum", "exp_avg_sq", "weight"};

StoreOptions OptionsFor(std::shared_ptr<Communicator> communicator,
                        bool inverted) {
  const Pinning rest = inverted ? Pinning::kOff : Pinning::kTry;
  const Pinning others = inverted ? Pinning::kTry : Pinning::kOff;
  StoreOptions options{.communicator = std::move(communicator),
                       .tiers = {.rest = {.pinning = rest}}};
  for (const StateKind& kind : kUnpinned) {
    options.tiers.kinds[kind] = {.pinning = others};
  }
  return options;
}

void ExpectPinnedAsAsked(const StateStore& store, const StoreOptions& options) {
  EXPECT_EQ(store.pin_reports().size(), 6U);
  size_t i = 0;
  for (const StateKind kind :
       {"master", "momentum", "exp_avg", "exp_avg_sq", "gradient", "weight"}) {
    const PinReport report = store.pin_reports().at(i++);
    SCOPED_TRACE(kind);
    EXPECT_EQ(report.asked, options.tiers.of(kind).pinning);
    EXPECT_GT(report.total_bytes, 0U);
    if (report.asked == Pinning::kOff) {
      EXPECT_EQ(report.method, "none");
      EXPECT_EQ(report.pinned_bytes, 0U);
    } else if (report.pinned_bytes < report.total_bytes) {
      EXPECT_NE(report.shortfall, "");
    } else {
      EXPECT_NE(report.method, "none");
    }
  }
}

Addresses AddressesOf(StateStore& store) {
  Addresses addresses;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    for (const StateKind& kind : store.kinds(static_cast<int32_t>(i))) {
      const ReadLease lease = store.Read(store.parameters()[i].name, kind);
      for (const auto& piece : lease.pieces()) {
        addresses[lease.key().ToString()] = piece.data.data();
      }
    }
  }
  return addresses;
}

std::unique_ptr<Checkpoint> OpenFixture() {
  return deepspeed::DeepSpeedCheckpoint::Open(
      PosixFileSystem(),
      (testutil::RepositoryData() / "deepspeed/s2-ws2-bf16-cpu-base/ckpt/step5")
          .string(),
      {});
}

class PinningTest
    : public ::testing::TestWithParam<std::tuple<int32_t, int32_t, bool>> {};

TEST_P(PinningTest, IsAsAskedBeforeAndAfterALoad) {
  const auto [stage, num_ranks, inverted] = GetParam();
  testutil::RunConnectedRanks(
      num_ranks, [stage = stage, num_ranks = num_ranks,
                  inverted = inverted](const auto& communicator) {
        const auto checkpoint = OpenFixture();
        const auto specs = SpecsOf(*checkpoint);
        const StoreOptions options = OptionsFor(communicator, inverted);
        StateStore store(specs,
                         Partitioning::Build(
                             specs, {.stage = stage, .num_ranks = num_ranks}),
                         options);
        ExpectPinnedAsAsked(store, options);
        const Addresses before = AddressesOf(store);
        LoadCheckpoint(store, *checkpoint);
        EXPECT_EQ(AddressesOf(store), before);
        ExpectPinnedAsAsked(store, options);
        EXPECT_EQ(store.generation(specs.front().name, "master"), 1U);
      });
}

INSTANTIATE_TEST_SUITE_P(StagesAndRanks, PinningTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(1, 2),
                                            ::testing::Bool()));

}  // namespace
}  // namespace muonstore
