// What cannot be loaded is refused on every rank before anything is changed;
// what a read finds damaged poisons the store.

#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/load.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testutil::MemoryCheckpoint;
using testutil::MemoryTensor;
using testutil::UniqueValues;

constexpr int64_t kMatrixElements = 6 * 4;
constexpr int64_t kVectorElements = 5;

// A matrix under Muon and a vector under Adam, with all of their state; every
// element of every tensor is different.
class Source {
 public:
  Source() {
    AddState("w", {6, 4}, 0, {"master", "momentum"});
    AddState("b", {5}, 1, {"master", "exp_avg", "exp_avg_sq"});
    CheckpointInfo& info = checkpoint.mutable_info();
    info.format = "test";
    info.path = "memory";
    info.step = 9;
    info.counters = {{"skipped_steps", int64_t{2}}};
    info.groups = {{.name = "m", .optimizer = Optimizer::kMuon},
                   {.name = "a", .optimizer = Optimizer::kAdam, .step = 7}};
    info.momentum = MomentumRecord{};
  }

  size_t Index(const std::string& name, const std::string& kind) const {
    return FindTensor(checkpoint, {name, kind}).value();
  }

  MemoryCheckpoint checkpoint;

 private:
  void AddState(const std::string& name, const std::vector<int64_t>& shape,
                int32_t group, const std::vector<std::string>& kinds) {
    for (const std::string& kind : kinds) {
      const size_t index = checkpoint.Add(
          MemoryTensor{.parameter = name,
                       .kind = kind,
                       .shape = shape,
                       .group = group,
                       .num_pieces = 2},
          UniqueValues(Shape(shape).num_elements(),
                       static_cast<float>(1 + checkpoint.tensors().size())));
      checkpoint.mutable_tensor(index).optimizer =
          group == 0 ? Optimizer::kMuon : Optimizer::kAdam;
    }
  }
};

std::vector<ParameterSpec> Model() {
  return {{.name = "w", .shape = Shape({6, 4}), .weight_dtype = DType::kF32},
          {.name = "b",
           .shape = Shape({5}),
           .weight_dtype = DType::kF32,
           .group = 1,
           .optimizer = Optimizer::kAdam}};
}

std::unique_ptr<StateStore> MakeStore(
    std::vector<ParameterSpec> model = Model(),
    std::shared_ptr<Communicator> communicator = nullptr) {
  const int32_t num_ranks = communicator ? communicator->size() : 1;
  Partitioning partitioning =
      Partitioning::Build(model, {.stage = 2, .num_ranks = num_ranks});
  return std::make_unique<StateStore>(
      std::move(model), std::move(partitioning),
      StoreOptions{.communicator = std::move(communicator)});
}

// A store whose state would show any change, and what a load of it throws.
std::optional<Error> RefusalOf(const Checkpoint& checkpoint,
                               std::vector<ParameterSpec> model = Model(),
                               const LoadOptions& options = {}) {
  const auto store = MakeStore(std::move(model));
  const std::vector<float> before = UniqueValues(kMatrixElements, -3);
  store->Set("w", StateKind(kMaster), before);
  store->record().steps = 77;
  auto error = ErrorOf([&] { LoadCheckpoint(*store, checkpoint, options); });
  EXPECT_FALSE(store->poisoned());
  EXPECT_EQ(store->record().steps, 77);
  EXPECT_EQ(store->generation("w", StateKind(kMaster)), 1U);
  const GatheredTensor after = store->Gather("w", StateKind(kMaster));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.f32().begin()));
  return error;
}

TEST(LoadErrors, AWholeCheckpointLoads) {
  const Source source;
  const auto store = MakeStore();
  const LoadReport report = LoadCheckpoint(*store, source.checkpoint);
  EXPECT_THAT(report.missing, IsEmpty());
  EXPECT_THAT(report.notes, IsEmpty());
  EXPECT_EQ(store->record().steps, 7);
  EXPECT_EQ(store->record().skipped_steps, 2);
  EXPECT_THAT(store->record().group_steps, ElementsAre(7, 7));
  EXPECT_EQ(store->record().clipping, ClippingMode::kGradients);
  const GatheredTensor weight = store->Gather("w", StateKind(kWeight));
  const GatheredTensor master = store->Gather("w", StateKind(kMaster));
  EXPECT_TRUE(weight.data == master.data);
}

TEST(LoadErrors, AMissingParameterIsNamed) {
  const Source source;
  std::vector<ParameterSpec> model = Model();
  model.push_back(
      {.name = "other", .shape = Shape({2, 2}), .weight_dtype = DType::kF32});
  const auto error = RefusalOf(source.checkpoint, model);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kNotFound);
  EXPECT_EQ(error->place().tensor, "other");
}

TEST(LoadErrors, AMissingKindIsAnErrorOrZero) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .kind = "master", .shape = {6, 4}},
                 UniqueValues(kMatrixElements));
  checkpoint.mutable_info().groups = {{.optimizer = Optimizer::kMuon}};
  std::vector<ParameterSpec> model = {Model()[0]};
  const auto error = RefusalOf(checkpoint, model);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kNotFound);
  EXPECT_EQ(error->place().tensor, "w/momentum");

  const auto store = MakeStore(model);
  store->Set("w", StateKind(kMomentum), UniqueValues(kMatrixElements));
  const LoadReport report =
      LoadCheckpoint(*store, checkpoint, {.allow_missing_state = true});
  EXPECT_THAT(report.missing, ElementsAre("w/momentum"));
  EXPECT_THAT(store->Gather("w", StateKind(kMomentum)).f32(),
              testing::Each(0.0F));
}

TEST(LoadErrors, AnotherShapeIsRefused) {
  const Source source;
  std::vector<ParameterSpec> model = Model();
  model[0].shape = Shape({4, 6});
  const auto error = RefusalOf(source.checkpoint, model);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error->place().expected, "[4, 6]");
  EXPECT_EQ(error->place().found, "[6, 4]");
}

TEST(LoadErrors, AnotherOptimizerIsRefused) {
  const Source source;
  std::vector<ParameterSpec> model = Model();
  model[0].optimizer = Optimizer::kAdam;
  const auto error = RefusalOf(source.checkpoint, model);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error->place().expected, "adam");
  EXPECT_EQ(error->place().found, "muon");
}

TEST(LoadErrors, IntegersAreNoState) {
  Source source;
  source.checkpoint.mutable_tensor(source.Index("w", "momentum")).dtype =
      DType::kI32;
  const auto error = RefusalOf(source.checkpoint);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
  EXPECT_EQ(error->place().found, "i32");
}

TEST(LoadErrors, LostMastersAreNeverInvented) {
  Source source;
  source.checkpoint.mutable_tensor(source.Index("w", "master")).missing = {
      {3, 5}};
  const auto error =
      RefusalOf(source.checkpoint, Model(), {.allow_missing_state = true});
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error->message(), HasSubstr("elements 3 to 4"));
}

TEST(LoadErrors, LostMomentumIsZeroWhereThatIsAllowed) {
  Source source;
  const size_t momentum = source.Index("w", "momentum");
  source.checkpoint.mutable_tensor(momentum).missing = {{3, 5}, {23, 24}};
  EXPECT_EQ(RefusalOf(source.checkpoint)->code(), ErrorCode::kDataLoss);
  const auto store = MakeStore();
  const LoadReport report =
      LoadCheckpoint(*store, source.checkpoint, {.allow_missing_state = true});
  EXPECT_THAT(report.missing, ElementsAre("w/momentum elements 3 to 4",
                                          "w/momentum elements 23 to 23"));
  std::vector<float> expected = UniqueValues(kMatrixElements, 2);
  expected[3] = expected[4] = expected[23] = 0;
  const GatheredTensor loaded = store->Gather("w", StateKind(kMomentum));
  EXPECT_THAT(loaded.f32(), testing::ElementsAreArray(expected));
}

TEST(LoadErrors, AdamNeedsItsStep) {
  Source source;
  source.checkpoint.mutable_info().groups[1].step.reset();
  const auto error = RefusalOf(source.checkpoint);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kNotFound);
  EXPECT_EQ(error->place().tensor, "group 1/step");
  const auto store = MakeStore();
  const LoadReport report =
      LoadCheckpoint(*store, source.checkpoint, {.allow_missing_state = true});
  EXPECT_THAT(report.missing, ElementsAre("group 1/step"));
  EXPECT_THAT(store->record().group_steps, ElementsAre(7, 0));
}

TEST(LoadErrors, GroupsOfDifferentStepsAreNotMixed) {
  Source source;
  std::vector<float> values = UniqueValues(kVectorElements);
  for (const char* kind : {"master", "exp_avg", "exp_avg_sq"}) {
    const size_t index = source.checkpoint.Add(
        {.parameter = "c", .kind = kind, .shape = {5}, .group = 2}, values);
    source.checkpoint.mutable_tensor(index).optimizer = Optimizer::kAdam;
  }
  source.checkpoint.mutable_info().groups.push_back(
      {.optimizer = Optimizer::kAdam, .step = 4});
  std::vector<ParameterSpec> model = Model();
  model.push_back(model[1]);
  model.back().name = "c";
  const auto error = RefusalOf(source.checkpoint, model);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error->message(), HasSubstr("steps differ"));
  model.back().group = 2;
  const auto store = MakeStore(model);
  LoadCheckpoint(*store, source.checkpoint);
  EXPECT_THAT(store->record().group_steps, ElementsAre(7, 7, 4));
}

TEST(LoadErrors, MomentumInUnknownUnitsNeedsAScale) {
  Source source;
  source.checkpoint.mutable_info().momentum = {
      .convention = MomentumConvention::kAccumulate,
      .unit = MomentumUnit::kLossScaled,
      .scale_in_file = 512};
  auto error = RefusalOf(source.checkpoint);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error->place().found, HasSubstr("512"));
  error = RefusalOf(source.checkpoint, Model(), {.momentum_scale = 0});
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);

  const auto store = MakeStore();
  const LoadReport report =
      LoadCheckpoint(*store, source.checkpoint, {.momentum_scale = 10});
  EXPECT_EQ(store->record().convention, MomentumConvention::kAccumulate);
  // The store was made for the other one.
  EXPECT_THAT(report.notes,
              Contains(HasSubstr("M = mu M + G, as the checkpoint records")));
  std::vector<float> expected = UniqueValues(kMatrixElements, 2);
  for (float& value : expected) {
    value = static_cast<float>(static_cast<double>(value) / 10);
  }
  const GatheredTensor loaded = store->Gather("w", StateKind(kMomentum));
  EXPECT_THAT(loaded.f32(), testing::ElementsAreArray(expected));
}

TEST(LoadErrors, AProvenScaleIsTaken) {
  Source source;
  source.checkpoint.mutable_info().momentum = {
      .unit = MomentumUnit::kLossScaled, .unit_scale = 4};
  const auto store = MakeStore();
  const LoadReport report = LoadCheckpoint(*store, source.checkpoint);
  EXPECT_THAT(report.notes, ElementsAre(HasSubstr("loss scale 4")));
  EXPECT_EQ(store->Gather("w", StateKind(kMomentum)).f32()[0],
            UniqueValues(1, 2)[0] / 4);
}

TEST(LoadErrors, ALeaseIsInTheWay) {
  const Source source;
  const auto store = MakeStore();
  const ReadLease lease = store->Read("w", StateKind(kMaster));
  const auto error =
      ErrorOf([&] { LoadCheckpoint(*store, source.checkpoint); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error->place().tensor, "w/master");
  EXPECT_FALSE(store->poisoned());
}

TEST(LoadErrors, WhatAReadFindsDamagedPoisons) {
  Source source;
  source.checkpoint.Poison(source.Index("b", "exp_avg_sq"));
  const auto store = MakeStore();
  const auto error =
      ErrorOf([&] { LoadCheckpoint(*store, source.checkpoint); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
  EXPECT_EQ(error->place().tensor, "b/exp_avg_sq");
  EXPECT_TRUE(store->poisoned());
  EXPECT_EQ(CodeOf([&] { store->Gather("w", StateKind(kMaster)); }),
            ErrorCode::kUnavailable);
}

TEST(LoadErrors, NotesSayWhatIsLeftOutAndRounded) {
  Source source;
  source.checkpoint.Add({.parameter = "w",
                         .kind = "weight",
                         .shape = {6, 4},
                         .dtype = DType::kBF16},
                        UniqueValues(kMatrixElements, 99));
  std::vector<ParameterSpec> model = {Model()[0]};
  const auto store = MakeStore(model);
  const LoadReport report = LoadCheckpoint(*store, source.checkpoint);
  EXPECT_THAT(report.notes, Contains(HasSubstr("rounded from the master: w")));
  EXPECT_THAT(report.notes, Contains(HasSubstr("the store does not train: b")));
  EXPECT_TRUE(store->Gather("w", StateKind(kWeight)).data ==
              store->Gather("w", StateKind(kMaster)).data);
}

TEST(LoadErrors, OfOneRankIsAnErrorOfAll) {
  testutil::RunConnectedRanks(
      2, [](const std::shared_ptr<Communicator>& ranks) {
        Source source;
        if (ranks->rank() == 1) {
          source.checkpoint.mutable_info().groups[1].step.reset();
        }
        const auto store = MakeStore(Model(), ranks);
        const auto error =
            ErrorOf([&] { LoadCheckpoint(*store, source.checkpoint); });
        ASSERT_TRUE(error.has_value());
        EXPECT_EQ(error->code(), ranks->rank() == 1 ? ErrorCode::kNotFound
                                                    : ErrorCode::kUnavailable);
        EXPECT_FALSE(store->poisoned());
        EXPECT_EQ(store->generation("w", StateKind(kMaster)), 0U);
        store->Close();
      });
}

TEST(LoadErrors, DamageThatOneRankMeetsPoisonsAll) {
  testutil::RunConnectedRanks(
      2, [](const std::shared_ptr<Communicator>& ranks) {
        Source source;
        if (ranks->rank() == 1) {
          source.checkpoint.Poison(source.Index("w", "master"));
        }
        const auto store = MakeStore(Model(), ranks);
        const auto error =
            ErrorOf([&] { LoadCheckpoint(*store, source.checkpoint); });
        ASSERT_TRUE(error.has_value());
        EXPECT_EQ(error->code(), ranks->rank() == 1 ? ErrorCode::kDataLoss
                                                    : ErrorCode::kUnavailable);
        EXPECT_TRUE(store->poisoned());
      });
}

TEST(LoadErrors, RanksThatOpenedDifferentCheckpointsDisagree) {
  testutil::RunConnectedRanks(
      2, [](const std::shared_ptr<Communicator>& ranks) {
        Source source;
        if (ranks->rank() == 1) source.checkpoint.mutable_info().step = 10;
        const auto store = MakeStore(Model(), ranks);
        EXPECT_EQ(CodeOf([&] { LoadCheckpoint(*store, source.checkpoint); }),
                  ErrorCode::kInvalidArgument);
        EXPECT_FALSE(store->poisoned());
        store->Close();
      });
}

// Of one model, tag and step: only the values tell.
TEST(LoadErrors, RanksThatOpenedOtherValuesDisagree) {
  testutil::RunConnectedRanks(
      2, [](const std::shared_ptr<Communicator>& ranks) {
        Source source;
        const float value = ranks->rank() == 1 ? 99 : 98;
        source.checkpoint.SetElement(source.Index("b", "exp_avg"),
                                     kVectorElements / 2,
                                     std::as_bytes(std::span(&value, 1)));
        const auto store = MakeStore(Model(), ranks);
        const auto error =
            ErrorOf([&] { LoadCheckpoint(*store, source.checkpoint); });
        ASSERT_TRUE(error.has_value());
        EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
        EXPECT_THAT(error->message(), HasSubstr("different checkpoints"));
        EXPECT_FALSE(store->poisoned());
        store->Close();
      });
}

TEST(LoadErrors, RanksThatOpenedOtherSavesDisagree) {
  testutil::RunConnectedRanks(
      2, [](const std::shared_ptr<Communicator>& ranks) {
        Source source;
        source.checkpoint.mutable_info().identity =
            ranks->rank() == 1 ? "one" : "two";
        const auto store = MakeStore(Model(), ranks);
        EXPECT_EQ(CodeOf([&] { LoadCheckpoint(*store, source.checkpoint); }),
                  ErrorCode::kInvalidArgument);
        EXPECT_FALSE(store->poisoned());
        store->Close();
      });
}

TEST(LoadErrors, AMomentumScaleIsOneThatALossScaleCanBe) {
  Source source;
  source.checkpoint.mutable_info().momentum = {.unit =
                                                   MomentumUnit::kLossScaled};
  for (const double scale :
       {-1.0, 1e300, 1e-300, std::numeric_limits<double>::infinity(),
        std::numeric_limits<double>::quiet_NaN()}) {
    const auto error =
        RefusalOf(source.checkpoint, Model(), {.momentum_scale = scale});
    ASSERT_TRUE(error.has_value()) << scale;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << scale;
  }
  source.checkpoint.mutable_info().momentum->unit_scale = 1e300;
  EXPECT_EQ(RefusalOf(source.checkpoint)->code(), ErrorCode::kDataLoss);
}

TEST(LoadErrors, AClippingModeThatThereIsNot) {
  Source source;
  source.checkpoint.mutable_info().counters.emplace_back("clipping", "often");
  EXPECT_EQ(RefusalOf(source.checkpoint)->code(), ErrorCode::kDataLoss);
  source.checkpoint.mutable_info().counters.back().second = "off";
  const auto store = MakeStore();
  LoadCheckpoint(*store, source.checkpoint);
  EXPECT_EQ(store->record().clipping, ClippingMode::kOff);
}

}  // namespace
}  // namespace muonstore
