#include "src/store/snapshot.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/store.h"
#include "src/store/store_impl.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using testutil::SmallModel;
using testutil::UniqueValues;

TEST(SnapshotTest, HoldsWhatACheckpointHolds) {
  const auto model = SmallModel();
  StateStore store(
      model, Partitioning::Build(model, {.stage = 2, .num_ranks = 1}), {});
  store.Set("mlp.up.weight", "momentum", UniqueValues(model[2], 1));
  const auto snapshot = TakeSnapshot(store.impl(), {});
  std::map<std::string, int> kinds;
  const auto segments = snapshot->segments();
  for (size_t i = 0; i < segments.size(); ++i) {
    ++kinds[std::string(segments[i].kind)];
    const auto bytes = snapshot->memory(i);
    EXPECT_EQ(bytes.size(),
              static_cast<size_t>(segments[i].num_elements) * sizeof(float));
    std::vector<std::byte> read(bytes.size());
    snapshot->Read(i, 0, read)->Wait();
    EXPECT_EQ(std::memcmp(read.data(), bytes.data(), read.size()), 0);
    snapshot->Release(i);
  }
  EXPECT_EQ(
      kinds,
      (std::map<std::string, int>{
          {"master", 2}, {"momentum", 1}, {"exp_avg", 1}, {"exp_avg_sq", 1}}));
}

TEST(SnapshotTest, APoisonedStoreRefuses) {
  const auto model = SmallModel();
  StateStore store(
      model, Partitioning::Build(model, {.stage = 2, .num_ranks = 1}), {});
  store.Poison("the disk failed");
  EXPECT_EQ(CodeOf([&] { TakeSnapshot(store.impl(), {}); }),
            ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace muonstore
