// One suite over all tiers: what a store does does not depend on where its
// segments live.
#include <filesystem>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/store.h"
#include "src/store/lease_state.h"
#include "src/store/store_impl.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fault_tier.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::AllIn;
using testutil::Cut;
using testutil::FaultTier;
using testutil::RunConnectedRanks;
using testutil::SmallModel;
using testutil::TierOperation;
using testutil::UniqueValues;

enum class Where { kPinned, kShared, kNvme, kFiles, kMixed };

TierPolicy PolicyOf(Where where) {
  const auto files = std::make_shared<FaultTier>(
      testutil::FaultTierOptions{.reorder = true, .seed = 11});
  switch (where) {
    case Where::kPinned:
      return AllIn(MakePinnedHostTier());
    case Where::kShared:
      return AllIn(MakeSharedHostTier());
    case Where::kNvme:
      return AllIn(MakeNvmeTier(
          {.directory = std::filesystem::temp_directory_path().string()}));
    case Where::kFiles:
      return AllIn(files);
    case Where::kMixed:
      break;
  }
  // Masters and large momenta in files.
  TierPolicy tiers;
  tiers.kinds["master"] = {.tier = files, .resident_below_bytes = 0};
  tiers.kinds["momentum"] = {.tier = files, .resident_below_bytes = 100};
  return tiers;
}

class StoreTiersTest
    : public ::testing::TestWithParam<std::tuple<Where, int32_t, int32_t>> {};

struct Tensor {
  int32_t parameter = 0;
  StateKind kind;
};

// Of f32, but for gradients.
std::vector<Tensor> TensorsOf(const StateStore& store) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    for (const StateKind& kind : store.kinds(static_cast<int32_t>(i))) {
      if (IsSavedKind(kind)) tensors.push_back({static_cast<int32_t>(i), kind});
    }
  }
  return tensors;
}

// Sets the tensor, and changes the first element of each piece by a lease.
void WriteTensor(StateStore& store, const Tensor& tensor, int32_t salt) {
  const ParameterSpec& spec =
      store.parameters()[static_cast<size_t>(tensor.parameter)];
  const std::vector<float> values = UniqueValues(spec, salt);
  store.Set(spec.name, tensor.kind, values);
  WriteLease lease = store.Write(spec.name, tensor.kind);
  for (const auto& piece : lease.pieces()) {
    auto* floats = reinterpret_cast<float*>(piece.data.data());
    EXPECT_EQ(floats[0],
              values[static_cast<size_t>(piece.fragment.tensor_offset)]);
    floats[0] += 0.125F;
  }
  lease.Commit();
}

std::vector<float> ValuesAfter(const StateStore& store, const Tensor& tensor,
                               int32_t salt) {
  std::vector<float> values = UniqueValues(
      store.parameters()[static_cast<size_t>(tensor.parameter)], salt);
  for (const Fragment& fragment :
       store.partitioning().fragments(tensor.parameter)) {
    values[static_cast<size_t>(fragment.tensor_offset)] += 0.125F;
  }
  return values;
}

void CheckTensors(StateStore& store) {
  for (const int32_t salt : {0, 1}) {
    for (const Tensor& tensor : TensorsOf(store)) {
      WriteTensor(store, tensor, salt);
    }
  }
  for (const Tensor& tensor : TensorsOf(store)) {
    const std::string& name =
        store.parameters()[static_cast<size_t>(tensor.parameter)].name;
    const GatheredTensor gathered = store.Gather(name, tensor.kind);
    EXPECT_EQ(std::vector<float>(gathered.f32().begin(), gathered.f32().end()),
              ValuesAfter(store, tensor, 1))
        << gathered.key.ToString();
    EXPECT_EQ(store.generation(name, tensor.kind), 4U);
  }
}

TEST_P(StoreTiersTest, WhatIsWrittenIsRead) {
  const auto [where, stage, num_ranks] = GetParam();
  RunConnectedRanks(num_ranks, [where = where, stage = stage,
                                num_ranks =
                                    num_ranks](const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model, Cut(model, stage, num_ranks),
                     {.communicator = communicator, .tiers = PolicyOf(where)});
    CheckTensors(store);
    store.Close();
  });
}

INSTANTIATE_TEST_SUITE_P(
    TiersStagesAndRanks, StoreTiersTest,
    ::testing::Combine(::testing::Values(Where::kPinned, Where::kShared,
                                         Where::kNvme, Where::kFiles,
                                         Where::kMixed),
                       ::testing::Values(1, 2, 3), ::testing::Values(1, 3)));

class StoreInFilesTest : public ::testing::Test {
 protected:
  StoreInFilesTest()
      : tier_(std::make_shared<FaultTier>()),
        model_(SmallModel()),
        store_(model_, Cut(model_, 2, 1), {.tiers = AllIn(tier_)}) {
    store_.Set(kName, "master", UniqueValues(model_[1], 1));
  }

  std::vector<float> Now() {
    const GatheredTensor tensor = store_.Gather(kName, "master");
    return {tensor.f32().begin(), tensor.f32().end()};
  }

  static constexpr const char* kName = "attn.qkv.weight";
  std::shared_ptr<FaultTier> tier_;
  std::vector<ParameterSpec> model_;
  StateStore store_;
};

TEST_F(StoreInFilesTest, AFailedReadGivesNoLeaseAndHarmsNothing) {
  tier_->FailWhere([](const TierOperation& what) { return !what.is_write; });
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { store_.Read(kName, "master"); },
           [&] { store_.Write(kName, "master"); },
           [&] { store_.Gather(kName, "master"); }}) {
    EXPECT_EQ(CodeOf(call), ErrorCode::kUnavailable);
    EXPECT_THAT(TextOf(call), HasSubstr("attn.qkv.weight/master"));
  }
  tier_->FailWhere(nullptr);
  EXPECT_FALSE(store_.poisoned());
  EXPECT_EQ(Now(), UniqueValues(model_[1], 1));
  store_.Write(kName, "master").Commit();
}

TEST_F(StoreInFilesTest, AFailedCommitPoisons) {
  WriteLease lease = store_.Write(kName, "master");
  tier_->FailWhere([](const TierOperation& what) { return what.is_write; });
  EXPECT_EQ(CodeOf([&] { lease.Commit(); }), ErrorCode::kUnavailable);
  tier_->FailWhere(nullptr);
  EXPECT_TRUE(store_.poisoned());
  EXPECT_THAT(TextOf([&] { store_.Read(kName, "master"); }),
              HasSubstr("writing attn.qkv.weight/master"));
}

TEST_F(StoreInFilesTest, ADroppedWriterWritesNothing) {
  const int64_t writes = tier_->counts().writes;
  {
    const WriteLease lease = store_.Write(kName, "master");
    lease.pieces().at(0).data[0] = std::byte{77};
  }
  EXPECT_EQ(tier_->counts().writes, writes);
  EXPECT_EQ(Now(), UniqueValues(model_[1], 1));
}

TEST_F(StoreInFilesTest, OverwritingReadsNothing) {
  const int64_t reads = tier_->counts().reads;
  Overwrite(store_.impl(), 1, kMaster, [&](const auto& pieces) {
    const std::vector<float> values = UniqueValues(model_[1], 2);
    for (const StatePiece<std::byte>& piece : pieces) {
      ConvertFromF32(std::span(values).subspan(
                         static_cast<size_t>(piece.fragment.tensor_offset),
                         static_cast<size_t>(piece.fragment.length)),
                     DType::kF32, piece.data);
    }
  });
  EXPECT_EQ(tier_->counts().reads, reads);
  EXPECT_EQ(Now(), UniqueValues(model_[1], 2));
  EXPECT_EQ(store_.generation(kName, "master"), 2U);
}

TEST_F(StoreInFilesTest, SettingATensorReadsNothing) {
  const int64_t reads = tier_->counts().reads;
  store_.Set(kName, "master", UniqueValues(model_[1], 3));
  EXPECT_EQ(tier_->counts().reads, reads);
  EXPECT_EQ(Now(), UniqueValues(model_[1], 3));
}

TEST_F(StoreInFilesTest, AnOverwriteThatFailsChangesNothing) {
  const auto overwrite = [&] {
    Overwrite(store_.impl(), 1, kMaster, [](const auto& pieces) {
      pieces[0].data[0] = std::byte{1};
      throw Error(ErrorCode::kDataLoss, "the source is damaged");
    });
  };
  EXPECT_EQ(CodeOf(overwrite), ErrorCode::kDataLoss);
  EXPECT_EQ(Now(), UniqueValues(model_[1], 1));
  EXPECT_EQ(store_.generation(kName, "master"), 1U);
  EXPECT_FALSE(store_.poisoned());
}

TEST_F(StoreInFilesTest, ReadersHaveMemoryOfTheirOwn) {
  const ReadLease lease = store_.Read(kName, "master");
  const auto view = lease.Matrices(1, 0, 1);
  const std::vector<float> whole = UniqueValues(model_[1], 1);
  EXPECT_EQ(reinterpret_cast<const float*>(view.data)[view.row_stride + 3],
            whole[8 * 8 + 8 + 3]);
  EXPECT_FALSE(store_.impl().segments->addressable(kMaster, 0));
}

TEST(StoreTiersErrorsTest, RanksMustPutTheSameSegmentsIntoMemory) {
  RunConnectedRanks(2, [](const auto& communicator) {
    const auto model = SmallModel();
    const auto build = [&] {
      const TierPolicy tiers = communicator->rank() == 0
                                   ? TierPolicy{}
                                   : AllIn(std::make_shared<FaultTier>());
      StateStore store(model, Cut(model, 2, 2),
                       {.communicator = communicator, .tiers = tiers});
    };
    EXPECT_EQ(CodeOf(build), ErrorCode::kInvalidArgument);
  });
}

TEST(StoreTiersErrorsTest, ATierWithoutRoomIsRefused) {
  const auto model = SmallModel();
  const auto build = [&] {
    StateStore store(
        model, Cut(model, 2, 1),
        {.tiers = AllIn(std::make_shared<FaultTier>(testutil::FaultTierOptions{
             .available_bytes = uint64_t{5} * 4096}))});
  };
  EXPECT_EQ(CodeOf(build), ErrorCode::kResourceExhausted);
  EXPECT_THAT(TextOf(build), HasSubstr("fault tier"));
}

TEST(StoreTiersErrorsTest, AllArenasReportTheirPinning) {
  const auto model = SmallModel();
  StateStore store(model, Cut(model, 2, 1), {.tiers = PolicyOf(Where::kMixed)});
  EXPECT_EQ(store.pin_reports().size(), store.impl().segments->arenas().size());
}

}  // namespace
}  // namespace muonstore
