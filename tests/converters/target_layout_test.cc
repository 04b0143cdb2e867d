// Which order and cut a target gets, from requests, configs and other
// checkpoints.
#include "converters/target_layout.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/open.h"
#include "tests/deepspeed/checkpoint_writer.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using deepspeed::CheckpointSpec;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::unique_ptr<Checkpoint> OpenCase(const std::string& name) {
  const auto root = testutil::FindDeepSpeedCase(name).folder / "ckpt";
  return OpenCheckpoint(PosixFileSystem(), root.string());
}

// Names of a flat group, in flat order.
std::vector<std::string> Names(const TargetLayout& layout, size_t flat_group) {
  std::vector<std::string> names;
  for (const int32_t p : layout.partitioning.groups()[flat_group].parameters) {
    names.push_back(layout.specs[static_cast<size_t>(p)].name);
  }
  return names;
}

std::vector<std::string> AllNames(const TargetLayout& layout) {
  std::vector<std::string> names;
  for (size_t g = 0; g < layout.partitioning.groups().size(); ++g) {
    for (std::string& name : Names(layout, g)) names.push_back(std::move(name));
  }
  return names;
}

LayoutRequest Stage(int32_t stage) { return {.settings = {.stage = stage}}; }

// BF16_Optimizer writes as stage 1, whatever stage its run's config names.
TEST(TargetLayoutTest, LikeBf16OptimizerTakesTheStageOfItsConfig) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const auto like = OpenCase("s1-ws2-bf16-none-gacc32");
  const auto config_stage = CarriedSettings(*like).stage;
  ASSERT_TRUE(config_stage.has_value());
  for (const TargetLayout& layout :
       {ChooseLayout(*source, {.like = like.get()}).layout,
        ChooseLayout(*like, {}).layout}) {
    EXPECT_EQ(layout.optimizer_class, "BF16_Optimizer");
    EXPECT_EQ(layout.config_stage, config_stage);
  }
  EXPECT_FALSE(ChooseLayout(*source, Stage(1)).layout.config_stage.has_value());
}

TEST(TargetLayoutTest, WhatIsNotAskedForIsKept) {
  for (const std::string name :
       {"s1-ws2-bf16-none-base", "s2-ws2-bf16-cpu-oddmid+palign",
        "s2-ws11-bf16-none-ws11", "s3-ws2-bf16-none-zinit",
        "s1-ws2-bf16-none-gacc32", "s2-ws2-bf16-none-rr"}) {
    const auto source = OpenCase(name);
    const TargetLayout layout = ChooseLayout(*source, {}).layout;
    EXPECT_EQ(layout.rule.stage, source->info().stage) << name;
    EXPECT_EQ(layout.rule.num_ranks, source->info().num_ranks) << name;
    EXPECT_EQ(layout.precision, source->info().precision) << name;
    EXPECT_EQ(layout.offload, source->info().offload) << name;
    EXPECT_EQ(layout.optimizer_class, source->info().optimizer_class) << name;
    // Every master at the same place of the same rank.
    for (size_t t = 0; t < source->tensors().size(); ++t) {
      const CheckpointTensor& tensor = source->tensors()[t];
      if (tensor.key.kind != kMaster) continue;
      const auto spec = std::find_if(
          layout.specs.begin(), layout.specs.end(),
          [&](const auto& s) { return s.name == tensor.key.parameter; });
      ASSERT_NE(spec, layout.specs.end());
      const auto pieces = layout.partitioning.fragments(
          static_cast<int32_t>(spec - layout.specs.begin()));
      const auto stored = source->fragments(t);
      ASSERT_EQ(pieces.size(), stored.size()) << name << " " << spec->name;
      for (size_t i = 0; i < pieces.size(); ++i) {
        EXPECT_EQ(pieces[i].segment_offset, stored[i].segment_offset);
        EXPECT_EQ(pieces[i].tensor_offset, stored[i].tensor_offset);
      }
    }
  }
}

TEST(TargetLayoutTest, StageThreeNeedsToKnowAboutZeroInit) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const auto error = ErrorOf([&] { ChooseLayout(*source, Stage(3)); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  for (const char* hint : {"--zero-init yes", "--zero-init no", "--like"}) {
    EXPECT_THAT(error->message(), HasSubstr(hint));
  }
  LayoutRequest request = Stage(3);
  request.zero_init = true;
  const LayoutChoice by_module = ChooseLayout(*source, request);
  EXPECT_EQ(Names(by_module.layout, 0)[1], "blocks.0.attn.out_proj.weight");
  EXPECT_THAT(by_module.notes, Contains(HasSubstr("under zero.Init")));
  request.zero_init = false;
  const LayoutChoice sorted = ChooseLayout(*source, request);
  EXPECT_EQ(Names(sorted.layout, 0)[1], "blocks.1.attn.qkv.weight");
  EXPECT_THAT(sorted.notes, Contains(HasSubstr("sorted by shape")));
  EXPECT_EQ(sorted.layout.optimizer_class, "DeepSpeedZeroOptimizer_Stage3");
}

TEST(TargetLayoutTest, TheOrdersOfRealRunsAreMet) {
  const auto sorted2 = OpenCase("s2-ws2-bf16-none-base");
  const auto sorted3 = OpenCase("s3-ws2-bf16-none-base");
  const auto module3 = OpenCase("s3-ws2-bf16-none-zinit");
  const auto names = [](const Checkpoint& source, LayoutRequest request) {
    return AllNames(ChooseLayout(source, request).layout);
  };
  // Each against what DeepSpeed itself wrote.
  LayoutRequest no = Stage(3);
  no.zero_init = false;
  LayoutRequest yes = Stage(3);
  yes.zero_init = true;
  EXPECT_EQ(names(*sorted2, no), names(*sorted3, {}));
  EXPECT_EQ(names(*sorted2, yes), names(*module3, {}));
  EXPECT_EQ(names(*sorted3, yes), names(*module3, {}));
  EXPECT_EQ(names(*module3, no), names(*sorted3, {}));
  EXPECT_EQ(names(*module3, Stage(2)), names(*sorted2, {}));
  EXPECT_EQ(names(*sorted3, Stage(1)), names(*sorted2, {}));
  // A stage-3 source settles its own order.
  LayoutRequest four = {.settings = {.num_ranks = 4}};
  EXPECT_EQ(names(*module3, four), names(*module3, {}));
  EXPECT_EQ(names(*sorted3, four), names(*sorted3, {}));
}

TEST(TargetLayoutTest, RoundRobinIsTakenBackAndDoneAgain) {
  const auto dealt = OpenCase("s2-ws2-bf16-none-rr");
  const auto plain = OpenCase("s2-ws2-bf16-none-base");
  const LayoutRequest off = {.settings = {.round_robin = false}};
  const LayoutRequest on = {.settings = {.round_robin = true}};
  const auto names = [](const Checkpoint& source, const LayoutRequest& r) {
    return AllNames(ChooseLayout(source, r).layout);
  };
  EXPECT_EQ(names(*dealt, off), names(*plain, {}));
  EXPECT_EQ(names(*plain, on), names(*dealt, {}));
  EXPECT_NE(names(*plain, {}), names(*dealt, {}));
}

TEST(TargetLayoutTest, EqualOrdersNeedNoAnswer) {
  testutil::Scratch scratch;
  CheckpointSpec spec{
      .parameters = {{.dims = {4, 6}},
                     {.dims = {3, 5}},
                     {.dims = {7}, .group = 1, .is_muon = false}},
      .rule = {.stage = 2, .num_ranks = 2}};
  deepspeed::MakeCheckpoint(spec).Write(scratch / "tag");
  const auto source =
      OpenCheckpoint(PosixFileSystem(), (scratch / "tag").string());
  const TargetLayout layout = ChooseLayout(*source, Stage(3)).layout;
  EXPECT_THAT(AllNames(layout), ElementsAre("p0", "p1", "p2"));
}

TEST(TargetLayoutTest, ZeroInitIsForStageThree) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  LayoutRequest request = Stage(2);
  request.zero_init = true;
  EXPECT_THAT(MessageOf([&] { ChooseLayout(*source, request); }),
              HasSubstr("stage 3 only"));
}

TEST(TargetLayoutTest, SubGroupsOfAStageThreeSourceStay) {
  const auto source = OpenCase("s3-ws2-bf16-none-subgroup");
  const auto kept = ChooseLayout(*source, {}).layout;
  LayoutRequest request = {.settings = {.num_ranks = 4}};
  const TargetLayout other = ChooseLayout(*source, request).layout;
  EXPECT_GT(kept.partitioning.groups().size(), 2U);
  EXPECT_GT(other.partitioning.groups().size(), 2U);
  request.settings.sub_group_size = 1'000'000'000;
  EXPECT_EQ(ChooseLayout(*source, request).layout.partitioning.groups().size(),
            2U);
}

TEST(TargetLayoutTest, LikeTakesEverythingFromThere) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  for (const std::string name :
       {"s3-ws2-bf16-none-zinit", "s3-ws2-bf16-none-subgroup",
        "s1-ws4-bf16-cpu-base", "s2-ws2-bf16-none-rr"}) {
    const auto like = OpenCase(name);
    const LayoutChoice choice = ChooseLayout(*source, {.like = like.get()});
    const TargetLayout own = ChooseLayout(*like, {}).layout;
    EXPECT_EQ(AllNames(choice.layout), AllNames(own)) << name;
    EXPECT_EQ(choice.layout.rule.stage, like->info().stage);
    EXPECT_EQ(choice.layout.rule.num_ranks, like->info().num_ranks);
    EXPECT_EQ(choice.layout.precision, like->info().precision);
    EXPECT_EQ(choice.layout.offload, like->info().offload);
    EXPECT_EQ(choice.layout.partitioning.groups().size(),
              own.partitioning.groups().size());
    EXPECT_THAT(choice.notes, Contains(HasSubstr("cut and ordered as")));
  }
}

TEST(TargetLayoutTest, LikeMustBeTheSameModel) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const auto other = OpenCase("s1-ws2-bf16-none-frozen");
  const auto error =
      ErrorOf([&] { ChooseLayout(*source, {.like = other.get()}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error->message(),
              HasSubstr("only in the source: blocks.0.fc1.weight, "
                        "blocks.1.ln2.bias; only there: none"));
  const auto grouped = OpenCase("s1-ws2-bf16-none-groups+sched");
  EXPECT_THAT(
      MessageOf([&] { ChooseLayout(*source, {.like = grouped.get()}); }),
      HasSubstr("differs"));
}

TEST(TargetLayoutTest, LikeAndOtherOptionsMustAgree) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const auto like = OpenCase("s3-ws2-bf16-none-zinit");
  LayoutRequest request{.like = like.get()};
  request.settings.stage = 3;
  EXPECT_THAT(MessageOf([&] { ChooseLayout(*source, request); }), IsEmpty());
  request.settings.num_ranks = 4;
  EXPECT_THAT(MessageOf([&] { ChooseLayout(*source, request); }),
              HasSubstr("number of ranks"));
  request.settings.num_ranks.reset();
  request.zero_init = true;
  EXPECT_THAT(MessageOf([&] { ChooseLayout(*source, request); }),
              HasSubstr("leave out --zero-init"));
}

TEST(TargetLayoutTest, LikeAndAConfigMustCutAlike) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const auto subgroups = OpenCase("s3-ws2-bf16-none-subgroup");
  const int64_t size = *CarriedSettings(*subgroups).sub_group_size;
  for (const int64_t asked : {size, size / 2, int64_t{1} << 40}) {
    LayoutRequest request{.like = subgroups.get()};
    request.settings.sub_group_size = asked;
    EXPECT_THAT(MessageOf([&] { ChooseLayout(*source, request); }),
                asked == size ? HasSubstr("") : HasSubstr("sub_group_size"))
        << asked;
  }
  const auto flat = OpenCase("s2-ws2-bf16-none-base");
  LayoutRequest request{.like = flat.get()};
  request.settings.sub_group_size = 1;  // Stage 3 alone has them.
  request.settings.round_robin = false;
  EXPECT_THAT(MessageOf([&] { ChooseLayout(*source, request); }), IsEmpty());
  request.settings.round_robin = true;
  EXPECT_THAT(MessageOf([&] { ChooseLayout(*source, request); }),
              HasSubstr("round_robin_gradients"));
}

TEST(TargetLayoutTest, AnotherPrecisionIsRefused) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const auto like = OpenCase("s2-ws2-fp32-none-base");
  for (const LayoutRequest& request :
       {LayoutRequest{.settings = {.precision = "fp16"}},
        LayoutRequest{.like = like.get()}}) {
    const auto error = ErrorOf([&] { ChooseLayout(*source, request); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
    EXPECT_EQ(error->place().expected, "bf16");
  }
}

TEST(TargetLayoutTest, GradientsInFp32MakeBf16OptimizerAtStage1Only) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  LayoutRequest request = Stage(1);
  request.settings.f32_gradients = true;
  EXPECT_EQ(ChooseLayout(*source, request).layout.optimizer_class,
            "BF16_Optimizer");
  request.settings.stage = 2;
  EXPECT_EQ(ChooseLayout(*source, request).layout.optimizer_class,
            "DeepSpeedZeroOptimizer");
}

TEST(TargetLayoutTest, WeightsAloneAreNotEnough) {
  const auto file = testutil::FixturePath("torchfiles/plain.pt");
  const auto source = OpenCheckpoint(PosixFileSystem(), file.string());
  EXPECT_EQ(CodeOf([&] { ChooseLayout(*source, Stage(2)); }),
            ErrorCode::kUnsupported);
}

class RunConfigTest : public testing::Test {
 protected:
  RunSettings Read(std::string_view text) const {
    testutil::WriteBytes(scratch_ / "ds.json", text);
    return ReadRunConfig(*PosixFileSystem(), (scratch_ / "ds.json").string());
  }
  testutil::Scratch scratch_;
};

TEST_F(RunConfigTest, TakesWhatMovesBytes) {
  const RunSettings settings = Read(R"({
    // How we train.
    "bf16": {"enabled": true},
    "data_types": {"grad_accum_dtype": "fp32"},
    "zero_optimization": {
      "stage": 3, "sub_group_size": 1e6, "round_robin_gradients": true,
      "parameter_alignment": true, "offload_optimizer": {"device": "cpu"}}})");
  EXPECT_EQ(settings.stage, 3);
  EXPECT_EQ(settings.precision, "bf16");
  EXPECT_EQ(settings.offload, "cpu");
  EXPECT_EQ(settings.sub_group_size, 1'000'000);
  EXPECT_EQ(settings.round_robin, true);
  EXPECT_EQ(settings.parameter_alignment, true);
  EXPECT_EQ(settings.f32_gradients, true);
  EXPECT_FALSE(settings.num_ranks.has_value());
}

TEST_F(RunConfigTest, DefaultsAreDeepSpeeds) {
  const RunSettings settings = Read(R"({"zero_optimization": {"stage": 1}})");
  EXPECT_EQ(settings.stage, 1);
  EXPECT_EQ(settings.precision, "fp32");
  EXPECT_EQ(settings.offload, "none");
  EXPECT_EQ(settings.sub_group_size, 1'000'000'000);
  EXPECT_EQ(settings.round_robin, false);
  EXPECT_EQ(settings.f32_gradients, false);
}

TEST_F(RunConfigTest, WhatIsNoNumberOrFlagIsNotPassedOver) {
  for (const char* text :
       {R"({"zero_optimization": {"stage": "3"}})",
        R"({"bf16": {"enabled": 1}, "zero_optimization": {"stage": 2}})",
        R"({"bf16": {"enabled": true}, "fp16": {"enabled": true}})"}) {
    EXPECT_THAT(MessageOf([&] { Read(text); }), Not(IsEmpty())) << text;
  }
}

TEST_F(RunConfigTest, AutoIsLeftOpen) {
  const RunSettings settings = Read(R"({
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 2, "sub_group_size": "auto"}})");
  EXPECT_FALSE(settings.precision.has_value());
  EXPECT_FALSE(settings.sub_group_size.has_value());
}

// As DeepSpeed's read_zero_config_deprecated has it.
TEST_F(RunConfigTest, TrueIsStageOne) {
  EXPECT_EQ(Read(R"({"zero_optimization": true})").stage, 1);
}

TEST_F(RunConfigTest, NonsenseIsRefused) {
  for (const char* text :
       {"", "[]", "{", R"({"zero_optimization": {"stage": 0}})",
        R"({"zero_optimization": {"stage": 2.5}})", "{}",
        R"({"zero_optimization": {}})", R"({"zero_optimization": false})",
        R"({"zero_optimization": {"stage": 2, "stage": 1}})",
        R"({"zero_optimization": {"sub_group_size": 1e300}})"}) {
    const auto error = ErrorOf([&] { Read(text); });
    ASSERT_TRUE(error.has_value()) << text;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument) << text;
    EXPECT_THAT(error->what(), HasSubstr("ds.json")) << text;
  }
}

TEST_F(RunConfigTest, TheRunsClassFollows) {
  const auto source = OpenCase("s1-ws2-bf16-none-base");
  LayoutRequest request;
  request.settings = Read(R"({
    "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
    "zero_optimization": {"stage": 1}})");
  EXPECT_EQ(ChooseLayout(*source, request).layout.optimizer_class,
            "BF16_Optimizer");
  request.settings.stage = 2;
  EXPECT_EQ(ChooseLayout(*source, request).layout.optimizer_class,
            "DeepSpeedZeroOptimizer");
}

}  // namespace
}  // namespace muonstore
