// DeepSpeed's own faults that concern reading, by their numbers in
// docs/deepspeed-faults.md: each must be impossible here.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/verify.h"
#include "muonstore/file_system.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/golden.h"

namespace muonstore::deepspeed {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Pair;
using testing::UnorderedElementsAre;

std::string TagPath(const std::string& name, const std::string& tag = "step5",
                    const std::string& root = "ckpt") {
  return (testutil::FindDeepSpeedCase(name).folder / root / tag).string();
}

std::unique_ptr<DeepSpeedCheckpoint> OpenCase(const std::string& name,
                                              const ReadOptions& options = {}) {
  return DeepSpeedCheckpoint::Open(PosixFileSystem(), TagPath(name), options);
}

std::vector<float> ReadAll(const Checkpoint& checkpoint,
                           const std::string& name, std::string_view kind) {
  const auto tensor = FindTensor(checkpoint, {name, StateKind(kind)});
  EXPECT_TRUE(tensor.has_value()) << name << "/" << kind;
  const int64_t size = checkpoint.tensors()[*tensor].shape.num_elements();
  return ReadTensorF32(checkpoint, *tensor, {0, size});
}

// The golden values of a case, under DeepSpeed's names.
std::vector<float> GoldenValues(const std::string& name,
                                const std::string& key) {
  const testutil::Golden golden = testutil::ReadGolden(
      testutil::FindDeepSpeedCase(name).folder / "golden.h5");
  return golden.at(key).floats;
}

void ExpectStateIsGolden(const std::string& name) {
  const auto checkpoint = OpenCase(name);
  const testutil::Golden golden = testutil::ReadGolden(
      testutil::FindDeepSpeedCase(name).folder / "golden.h5");
  size_t compared = 0;
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    std::string kind = tensor.key.kind;
    kind = kind == kMaster     ? "fp32"
           : kind == kMomentum ? "momentum_buffer"
                               : kind;
    const auto it = golden.find(kind + "/" + tensor.key.parameter);
    if (it != golden.end()) {
      EXPECT_EQ(ReadAll(*checkpoint, tensor.key.parameter, tensor.key.kind),
                it->second.floats)
          << tensor.key.ToString();
      ++compared;
    }
  }
  EXPECT_GT(compared, 40U);
}

// The same tensors with the same values, whatever the files look like.
void ExpectSameState(const std::string& name_a, const std::string& name_b) {
  const auto a = OpenCase(name_a);
  const auto b = OpenCase(name_b);
  ASSERT_EQ(a->tensors().size(), b->tensors().size());
  for (const CheckpointTensor& tensor : a->tensors()) {
    EXPECT_EQ(ReadAll(*a, tensor.key.parameter, tensor.key.kind),
              ReadAll(*b, tensor.key.parameter, tensor.key.kind))
        << tensor.key.ToString();
  }
}

TEST(FaultsTest, B1TheStepIsTheStatesNotTheGroups) {
  const auto checkpoint = OpenCase("s2-ws2-bf16-none-base");
  const ParamGroup& adam = checkpoint->info().groups[1];
  EXPECT_EQ(adam.step, 5);
  // The group's own counter is 0 for ever: kept as it is, and not believed.
  EXPECT_THAT(adam.hyper_parameters,
              Contains(Pair("step", Scalar(int64_t{0}))));
}

TEST(FaultsTest, B2InMemoryMomentumIsReadFromTheFile) {
  const auto checkpoint = OpenCase("s3-ws2-bf16-none-inmem");
  const std::vector<float> momentum =
      ReadAll(*checkpoint, "odd.weight", kMomentum);
  EXPECT_EQ(momentum, GoldenValues("s3-ws2-bf16-none-inmem",
                                   "momentum_buffer/odd.weight"));
  EXPECT_NE(momentum, std::vector<float>(momentum.size(), 0.0F));
}

TEST(FaultsTest, B3ElasticTruncationIsNamedAndTheRestIsReadOnRequest) {
  const std::string name = "s1-ws2-bf16-none-elastic";
  EXPECT_THROW(OpenCase(name), Error);
  const auto checkpoint = OpenCase(name, {.allow_loss = true});
  const size_t odd =
      FindTensor(*checkpoint, {"odd.weight", StateKind(kMomentum)}).value();
  ASSERT_EQ(checkpoint->tensors()[odd].missing.size(), 1U);
  EXPECT_EQ(checkpoint->tensors()[odd].missing[0], (ElementRange{90, 91}));
  std::vector<float> golden = GoldenValues(name, "momentum_buffer/odd.weight");
  golden.pop_back();
  EXPECT_EQ(ReadTensorF32(*checkpoint, odd, {0, 90}), golden);
  EXPECT_THROW(ReadTensorF32(*checkpoint, odd, {0, 91}), Error);
  EXPECT_THROW(ReadTensorF32(*checkpoint, odd, {90, 91}), Error);
}

TEST(FaultsTest, B4SwappedAndResidentStateAreBothRead) {
  ExpectStateIsGolden("s3-ws2-bf16-nvme-swapall");
  ExpectStateIsGolden("s3-ws2-bf16-nvme-base");
  const auto swapped = OpenCase("s3-ws2-bf16-nvme-swapall");
  EXPECT_THAT(swapped->segments()[0].file, HasSubstr("offloaded_tensors"));
  EXPECT_EQ(swapped->info().groups[1].step, 5);
}

TEST(FaultsTest, B5BothStoredFormsOfMomentumGiveMatrices) {
  const auto whole = OpenCase("s2-ws2-bf16-none-base");
  const auto flat = OpenCase("s2-ws2-bf16-cpu-base");
  EXPECT_EQ(whole->info().momentum->stored_form, "whole matrices");
  EXPECT_EQ(flat->info().momentum->stored_form, "flat partition");
  ExpectStateIsGolden("s2-ws2-bf16-none-base");
  ExpectStateIsGolden("s2-ws2-bf16-cpu-base");
}

TEST(FaultsTest, B6Bf16OptimizerIsToldApart) {
  const auto checkpoint = OpenCase("s1-ws2-bf16-none-gacc32");
  EXPECT_EQ(checkpoint->info().optimizer_class, "BF16_Optimizer");
  EXPECT_EQ(checkpoint->info().stage, 1);
  EXPECT_EQ(checkpoint->info().momentum->stored_form, "flat partition");
  ExpectStateIsGolden("s1-ws2-bf16-none-gacc32");
}

TEST(FaultsTest, B7AndB15RoundRobinOrderIsTakenFromTheShapes) {
  ExpectStateIsGolden("s2-ws2-bf16-none-rr");
  const VerifyReport report =
      VerifyTag(PosixFileSystem(), TagPath("s2-ws2-bf16-none-rr"), {});
  EXPECT_TRUE(report.whole());
  EXPECT_EQ(OpenCase("s2-ws2-bf16-none-rr")->info().order, "sorted by shape");
}

TEST(FaultsTest, B8EveryRankCountGivesTheWholeState) {
  for (const char* name : {"s1-ws1-bf16-none-base", "s1-ws2-bf16-none-base",
                           "s2-ws4-bf16-none-base", "s2-ws11-bf16-none-ws11",
                           "s3-ws4-bf16-cpu-base", "s3-ws11-bf16-none-ws11"}) {
    SCOPED_TRACE(name);
    ExpectStateIsGolden(name);
  }
}

TEST(FaultsTest, B9StateKindsAreFoundPerGroup) {
  const auto checkpoint = OpenCase("s2-ws2-bf16-none-base");
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    if (tensor.optimizer == Optimizer::kMuon) {
      EXPECT_THAT((std::vector<std::string>{"master", "momentum", "weight"}),
                  Contains(tensor.key.kind));
    }
  }
  EXPECT_FALSE(checkpoint->info().groups[0].step.has_value());
  EXPECT_EQ(checkpoint->info().groups[1].step, 5);
}

TEST(FaultsTest, B10FrozenParametersAreThereAtEveryStage) {
  for (const char* name :
       {"s1-ws2-bf16-none-frozen", "s3-ws2-bf16-none-frozen"}) {
    const auto checkpoint = OpenCase(name);
    EXPECT_THAT(
        checkpoint->info().frozen,
        UnorderedElementsAre("blocks.0.fc1.weight", "blocks.1.ln2.bias"))
        << name;
    const auto weight =
        FindTensor(*checkpoint, {"blocks.0.fc1.weight", StateKind(kWeight)});
    ASSERT_TRUE(weight.has_value()) << name;
    EXPECT_EQ(checkpoint->tensors()[*weight].shape, Shape({56, 24}));
    EXPECT_EQ(checkpoint->tensors()[*weight].dtype, DType::kBF16);
  }
  // The same run but for the stage: the frozen weights are the same.
  EXPECT_EQ(ReadAll(*OpenCase("s1-ws2-bf16-none-frozen"), "blocks.0.fc1.weight",
                    kWeight),
            ReadAll(*OpenCase("s3-ws2-bf16-none-frozen"), "blocks.0.fc1.weight",
                    kWeight));
}

TEST(FaultsTest, B11StagesGiveOneLogicalState) {
  // The same training: stages 1 and 2 differ in nothing but their files.
  ExpectSameState("s1-ws2-bf16-none-base", "s2-ws2-bf16-none-base");
}

TEST(FaultsTest, B12SubGroupsAndOrderDoNotShow) {
  ExpectSameState("s3-ws2-bf16-none-subgroup", "s3-ws2-bf16-none-base");
  ExpectSameState("s3-ws2-bf16-none-zinit", "s3-ws2-bf16-none-base");
  ExpectSameState("s3-ws2-bf16-none-zinit+subgroup", "s3-ws2-bf16-none-base");
}

TEST(FaultsTest, B13EveryStateIsReachableByName) {
  const auto checkpoint = OpenCase("s1-ws2-bf16-none-base");
  EXPECT_EQ(ReadAll(*checkpoint, "blocks.1.fc1.weight", kMomentum).size(),
            56U * 24U);
  EXPECT_EQ(ReadAll(*checkpoint, "lm_head.weight", kExpAvgSq).size(),
            37U * 24U);
}

TEST(FaultsTest, OldVersionsReplicasDifferAndTheOwnersElementCounts) {
  ExpectStateIsGolden("s2-ws2-bf16-none-v0176");
  const VerifyReport report =
      VerifyTag(PosixFileSystem(), TagPath("s2-ws2-bf16-none-v0176"), {});
  EXPECT_TRUE(report.whole());
  std::vector<std::string> tensors;
  for (const Finding& finding : report.findings) {
    if (finding.code == "replicas_differ") {
      EXPECT_EQ(finding.severity, Finding::Severity::kWarning);
      tensors.push_back(finding.place.tensor);
    }
  }
  EXPECT_THAT(tensors, Contains(HasSubstr("/momentum")));
}

TEST(FaultsTest, MomentumThatWasNeverStoredIsReportedNotMadeUp) {
  for (const char* name : {"s2-ws2-bf16-cpu-v0176", "s2-ws2-bf16-cpu-v0189",
                           "s2-ws2-bf16-cpu-v0196"}) {
    const auto checkpoint = OpenCase(name);
    EXPECT_FALSE(FindTensor(*checkpoint, {"odd.weight", StateKind(kMomentum)}));
    EXPECT_FALSE(checkpoint->info().momentum.has_value());
    std::vector<std::string> codes;
    for (const Finding& finding : checkpoint->info().findings) {
      codes.push_back(finding.code);
    }
    EXPECT_THAT(codes, Contains("momentum_missing")) << name;
  }
}

}  // namespace
}  // namespace muonstore::deepspeed
