#include "muonstore/store.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testutil::Cut;
using testutil::RunConnectedRanks;
using testutil::SmallModel;
using testutil::UniqueValues;

std::vector<float> Widened(const GatheredTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.num_elements()));
  ConvertToF32(tensor.dtype, tensor.data, values);
  return values;
}

std::vector<float> Rounded(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() *
                               static_cast<size_t>(SizeBytes(dtype)));
  ConvertFromF32(values, dtype, bytes);
  std::vector<float> rounded(values.size());
  ConvertToF32(dtype, bytes, rounded);
  return rounded;
}

class StoreRanksTest
    : public ::testing::TestWithParam<std::tuple<int32_t, int32_t>> {};

// Calls with every tensor but gradients, and a number of its own.
void ForEachTensor(
    const StateStore& store,
    const std::function<void(const ParameterSpec&, const StateKind&,
                             int32_t salt)>& call) {
  const auto model = store.parameters();
  int32_t salt = 0;
  for (size_t i = 0; i < model.size(); ++i) {
    for (const StateKind& kind : store.kinds(static_cast<int32_t>(i))) {
      if (kind != kGradient) call(model[i], kind, ++salt);
    }
  }
}

void CheckSetAndGather(StateStore& store) {
  ForEachTensor(store, [&](const ParameterSpec& spec, const StateKind& kind,
                           int32_t salt) {
    store.Set(spec.name, kind, UniqueValues(spec, salt));
  });
  ForEachTensor(store, [&](const ParameterSpec& spec, const StateKind& kind,
                           int32_t salt) {
    const GatheredTensor tensor = store.Gather(spec.name, kind);
    EXPECT_EQ(tensor.shape, spec.shape);
    EXPECT_EQ(Widened(tensor), Rounded(UniqueValues(spec, salt), tensor.dtype))
        << tensor.key.ToString();
    EXPECT_EQ(store.generation(spec.name, kind), 1U);
  });
}

TEST_P(StoreRanksTest, WhatIsSetIsGathered) {
  const auto [stage, num_ranks] = GetParam();
  RunConnectedRanks(num_ranks, [stage = stage, num_ranks = num_ranks](
                                   const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model, Cut(model, stage, num_ranks),
                     {.communicator = communicator});
    CheckSetAndGather(store);
    store.Close();
  });
}

INSTANTIATE_TEST_SUITE_P(StagesAndRanks, StoreRanksTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values(1, 2, 3, 4, 11)));

TEST(StoreTest, KindsFollowFromTheOptimizer) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 2, 1), {});
  EXPECT_THAT(store.kinds(store.FindParameter("mlp.up.weight")),
              ElementsAre("master", "momentum", "gradient", "weight"));
  EXPECT_THAT(
      store.kinds(store.FindParameter("norm.weight")),
      ElementsAre("master", "exp_avg", "exp_avg_sq", "gradient", "weight"));
  EXPECT_THAT(store.kinds(store.FindParameter("frozen.weight")), IsEmpty());
  for (const int32_t parameter : {-1, 99}) {
    EXPECT_THAT(MessageOf([&] { store.kinds(parameter); }),
                HasSubstr("no such parameter"));
  }
}

TEST(StoreTest, StartsWithZeros) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 3, 1), {});
  EXPECT_THAT(store.Gather("mlp.up.weight", StateKind(kMomentum)).f32(),
              ::testing::Each(0.0F));
  EXPECT_EQ(store.generation("mlp.up.weight", StateKind(kMomentum)), 0U);
}

TEST(StoreTest, TakesOtherSystemsNamesOfKinds) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 2, 1), {});
  store.Set("mlp.up.weight", "momentum_buffer", UniqueValues(model[2], 1));
  const GatheredTensor tensor = store.Gather("mlp.up.weight", "momentum");
  EXPECT_EQ(Widened(tensor), UniqueValues(model[2], 1));
  EXPECT_EQ(tensor.key.kind, "momentum");
}

TEST(StoreTest, NamesWhatItDoesNotHave) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 2, 1), {});
  const auto code = [](const auto& call) { return CodeOf(call); };
  EXPECT_EQ(code([&] { store.FindParameter("mlp.upp.weight"); }),
            ErrorCode::kNotFound);
  EXPECT_THAT(TextOf([&] { store.FindParameter("mlp.upp.weight"); }),
              HasSubstr("mlp.up.weight"));
  EXPECT_EQ(code([&] { store.Read("norm.weight", "momentum"); }),
            ErrorCode::kNotFound);
  EXPECT_EQ(code([&] { store.Read("frozen.weight", "master"); }),
            ErrorCode::kNotFound);
  EXPECT_EQ(code([&] { store.Write("norm.weight", "gradient"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_THAT(TextOf([&] {
                store.Set("norm.weight", "master", std::vector<float>(12));
              }),
              HasSubstr("13 elements"));
}

TEST(StoreTest, APoisonedStoreRefusesEverything) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 2, 1), {});
  store.Poison("the disk failed");
  EXPECT_TRUE(store.poisoned());
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { store.Read("norm.weight", "master"); },
           [&] { store.Write("norm.weight", "master"); },
           [&] { store.Gather("norm.weight", "master"); },
           [&] { static_cast<void>(store.pin_reports()); }}) {
    EXPECT_EQ(CodeOf(call), ErrorCode::kUnavailable);
    EXPECT_THAT(TextOf(call), HasSubstr("the disk failed"));
  }
}

TEST(StoreTest, AClosedStoreRefusesEverything) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 2, 1), {});
  store.Close();
  store.Close();
  EXPECT_EQ(CodeOf([&] { store.Read("norm.weight", "master"); }),
            ErrorCode::kUnavailable);
  EXPECT_FALSE(store.poisoned());
}

TEST(StoreTest, ALeaseAtCloseLeavesTheStoreOpen) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 2, 1), {});
  {
    WriteLease lease = store.Write("norm.weight", "master");
    EXPECT_EQ(CodeOf([&] { store.Close(); }), ErrorCode::kInvalidArgument);
    lease.Commit();
  }
  EXPECT_EQ(store.generation("norm.weight", "master"), 1U);
  store.Read("norm.weight", "master");
  store.Close();
}

TEST(StoreTest, RanksThatGatherDifferentTensorsGetAnError) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model, Cut(model, 3, 2), {.communicator = communicator});
    const bool first = communicator->rank() == 0;
    const auto gather = [&](const char* kind) {
      store.Gather("norm.weight", kind);
    };
    EXPECT_EQ(CodeOf([&] { gather(first ? "exp_avg" : "master"); }),
              ErrorCode::kInvalidArgument);
    // A rank's own mistake reaches all, and breaks nothing.
    EXPECT_EQ(CodeOf([&] { gather(first ? "momentum" : "master"); }),
              first ? ErrorCode::kNotFound : ErrorCode::kUnavailable);
    gather("master");
  });
}

TEST(StoreTest, RanksThatDisagreeGetAnError) {
  RunConnectedRanks(3, [](const auto& communicator) {
    auto model = SmallModel();
    if (communicator->rank() == 1) model[2].layout = MatrixLayout::PerHead(3);
    const auto build = [&] {
      StateStore store(model, Cut(model, 2, 3), {.communicator = communicator});
    };
    EXPECT_EQ(CodeOf(build), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(build), HasSubstr("do not agree"));
  });
}

TEST(StoreTest, OneRanksErrorReachesAll) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto model = SmallModel();
    const bool bad = communicator->rank() == 1;
    const auto build = [&] {
      StateStore store(model, Cut(model, 2, 2),
                       {.communicator = communicator,
                        .max_bytes = bad ? uint64_t{10} : uint64_t{0}});
    };
    EXPECT_EQ(CodeOf(build),
              bad ? ErrorCode::kResourceExhausted : ErrorCode::kUnavailable);
    EXPECT_THAT(TextOf(build), HasSubstr(bad ? "max_bytes" : "rank 1"));
  });
}

TEST(StoreTest, APartitioningForOtherRanksIsRefused) {
  const auto model = SmallModel();
  const auto build = [&] { StateStore store(model, Cut(model, 2, 2), {}); };
  EXPECT_EQ(CodeOf(build), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace muonstore
