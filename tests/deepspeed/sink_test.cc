// What a target takes over beside the tensors, units, losses, and how a tag
// appears.

#include "formats/deepspeed/sink.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/momentum_unit.h"
#include "formats/deepspeed/values.h"
#include "muonstore/file_system.h"
#include "src/os/output_root.h"
#include "tests/deepspeed/convert_in_test.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"
#include "tests/torchfile/expect_error.h"

namespace muonstore::deepspeed {
namespace {

namespace fs = std::filesystem;
using torchfile::Value;

std::unique_ptr<DeepSpeedCheckpoint> OpenCase(
    const std::string& name, const std::string& tag = "step5") {
  const fs::path path = testutil::FindDeepSpeedCase(name).folder / "ckpt" / tag;
  return DeepSpeedCheckpoint::Open(PosixFileSystem(), path.string(),
                                   {.allow_loss = true});
}

// A checkpoint that hides parts of another one.
class Hiding : public Checkpoint {
 public:
  explicit Hiding(const Checkpoint& source)
      : source_(source), info_(source.info()) {}

  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return source_.tensors();
  }
  std::vector<Fragment> fragments(size_t tensor) const override {
    return source_.fragments(tensor);
  }
  std::span<const Segment> segments() const override {
    return source_.segments();
  }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override {
    source_.ReadSegment(segment, first_element, out);
  }
  CheckpointInfo& mutable_info() { return info_; }

 private:
  const Checkpoint& source_;
  CheckpointInfo info_;
};

class SinkTest : public testing::Test {
 protected:
  std::string root() const { return (scratch_ / "root").string(); }
  std::unique_ptr<DeepSpeedCheckpoint> To(const Checkpoint& source,
                                          const Wish& wish) const {
    return ConvertTo(source, LayoutOf(source, wish), root(), "tag");
  }
  std::unique_ptr<CheckpointSink> Sink(const Checkpoint& source,
                                       TargetLayout layout) {
    layouts_.push_back(std::make_unique<TargetLayout>(std::move(layout)));
    output_.emplace(PosixFileSystem(), root());
    return MakeSink(source, *layouts_.back(), *output_, {.tag = "tag"});
  }

  Value ModelRoot(const DeepSpeedCheckpoint& checkpoint, int32_t rank = 0) {
    kept_.push_back(*checkpoint.carried_state()->rank(rank).model_states);
    return kept_.back().value();
  }
  Value OptimizerOf(const DeepSpeedCheckpoint& checkpoint, int32_t rank = 0) {
    kept_.push_back(*checkpoint.carried_state()->rank(rank).optim_states);
    return kept_.back().value().Get("optimizer_state_dict");
  }

  testutil::Scratch scratch_;
  std::vector<std::unique_ptr<TargetLayout>> layouts_;  // Sinks borrow them.
  std::optional<os::OutputRoot> output_;
  std::vector<torchfile::TreeRef> kept_;  // Values point into their files.
};

void ExpectSameValues(const Value& before, const Value& after) {
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string key(before.entry(i).first.AsString());
    ASSERT_TRUE(after.Find(key).has_value()) << key;
  }
  for (const char* key : {"lr_scheduler", "rng", "nested", "global_steps"}) {
    EXPECT_EQ(after.Get(key).Describe(5000), before.Get(key).Describe(5000));
  }
}

TEST_F(SinkTest, ClientStateSchedulerAndCountersAreTheSources) {
  const auto source = OpenCase("s2-ws2-bf16-none-clientstate");
  const auto there = To(*source, {.stage = 3, .num_ranks = 3});
  const Value before = ModelRoot(*source);
  for (const int32_t rank : {0, 1, 2}) {
    const Value after = ModelRoot(*there, rank);
    ExpectSameValues(before, after);
    EXPECT_EQ(after.Get("dp_world_size").AsInt(), 3);
  }
}

TEST_F(SinkTest, TheConfigAgreesWithTheTarget) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const auto there =
      To(*source,
         {.stage = 3, .num_ranks = 2, .offload = "cpu", .sub_group_size = 900});
  const Value zero =
      ModelRoot(*there).Get("ds_config").Get("zero_optimization");
  EXPECT_EQ(zero.Get("stage").AsInt(), 3);
  EXPECT_EQ(zero.Get("offload_optimizer").Get("device").AsString(), "cpu");
  EXPECT_EQ(zero.Get("sub_group_size").AsInt(), 900);
  const auto back = To(*there, {.stage = 2, .num_ranks = 1});
  const Value again =
      ModelRoot(*back).Get("ds_config").Get("zero_optimization");
  EXPECT_EQ(again.Get("stage").AsInt(), 2);
  EXPECT_FALSE(again.Find("offload_optimizer").has_value());
}

void ExpectSameGroup(const ParamGroup& before, const ParamGroup& after) {
  EXPECT_EQ(after.name, before.name);
  EXPECT_EQ(after.hyper_parameters, before.hyper_parameters);
  EXPECT_EQ(after.step, before.step);
}

TEST_F(SinkTest, EachGroupKeepsItsHyperParametersOverSubGroups) {
  const auto source = OpenCase("s1-ws2-bf16-none-groups+sched");
  const auto there =
      To(*source, {.stage = 3, .num_ranks = 4, .sub_group_size = 300});
  ASSERT_EQ(there->info().groups.size(), source->info().groups.size());
  for (size_t g = 0; g < source->info().groups.size(); ++g) {
    ExpectSameGroup(source->info().groups[g], there->info().groups[g]);
  }
}

TEST_F(SinkTest, EachSubGroupIsInOneParamGroup) {
  const auto source = OpenCase("s1-ws2-bf16-none-groups+sched");
  const auto there =
      To(*source, {.stage = 3, .num_ranks = 4, .sub_group_size = 300});
  const Value groups =
      OptimizerOf(*there).Get("optimizer_state_dict").Get("param_groups");
  std::vector<int64_t> params;
  for (size_t g = 0; g < groups.size(); ++g) {
    const std::vector<int64_t> own = ToIntList(groups.at(g).Get("params"));
    params.insert(params.end(), own.begin(), own.end());
  }
  std::vector<int64_t> expected(
      there->parts().layout->partitioning.groups().size());
  std::iota(expected.begin(), expected.end(), int64_t{0});
  EXPECT_EQ(params, expected);
  EXPECT_GT(params.size(), source->info().groups.size());
}

TEST_F(SinkTest, AStepThatIsATensorStaysOne) {
  const auto source = OpenCase("s2-ws2-bf16-none-adamonly");
  const auto there = To(*source, {.stage = 3, .num_ranks = 3});
  const Value step = OptimizerOf(*there)
                         .Get("optimizer_state_dict")
                         .Get("state")
                         .Find(0)
                         ->Get("step");
  EXPECT_EQ(step.AsTensor().shape.rank(), 0);
  EXPECT_EQ(there->info().groups[0].step, source->info().groups[0].step);
}

TEST_F(SinkTest, TiedNamesAreToldByRankZeroAlone) {
  const auto source = OpenCase("s2-ws2-bf16-none-tied");
  const auto there = To(*source, {.stage = 3, .num_ranks = 2});
  EXPECT_EQ(there->info().aliases, source->info().aliases);
  EXPECT_EQ(ModelRoot(*there, 0).Get("shared_params").size(), 1u);
  EXPECT_EQ(ModelRoot(*there, 1).Get("shared_params").size(), 0u);
  // Views of one buffer again, not copies.
  const auto back = To(*there, {.stage = 2, .num_ranks = 2});
  const Value module = ModelRoot(*back).Get("module");
  const auto& [dropped, kept] = *source->info().aliases.begin();
  EXPECT_EQ(module.Get(dropped).AsTensor().storage,
            module.Get(kept).AsTensor().storage);
  EXPECT_EQ(module.Get(dropped).AsTensor().storage_offset,
            module.Get(kept).AsTensor().storage_offset);
}

TEST_F(SinkTest, FrozenParametersByStage) {
  const auto source = OpenCase("s1-ws2-bf16-none-frozen");
  const auto stage3 = To(*source, {.stage = 3, .num_ranks = 3});
  EXPECT_EQ(ModelRoot(*stage3).Get("frozen_param_shapes").size(), 2u);
  EXPECT_EQ(DifferenceOf(*source, *stage3), "");
  const auto stage2 = To(*stage3, {.stage = 2, .num_ranks = 2});
  EXPECT_EQ(ModelRoot(*stage2).Get("frozen_param_fragments").size(), 2u);
  const auto stage1 = To(*stage2, {.stage = 1, .num_ranks = 2});
  EXPECT_TRUE(ModelRoot(*stage1).Get("frozen_param_fragments").is_none());
  EXPECT_EQ(DifferenceOf(*source, *stage1), "");
}

TEST_F(SinkTest, ARunThatLeavesFrozenParametersOutStaysLikeThat) {
  const auto source = OpenCase("s2-ws2-bf16-none-exclfrozen");
  const auto there = To(*source, {.stage = 3, .num_ranks = 2});
  EXPECT_TRUE(ModelRoot(*there).Get("frozen_param_shapes").is_none());
  EXPECT_EQ(there->info().frozen, source->info().frozen);
}

// Which elements of a segment belong to a tensor.
std::vector<bool> DataOf(const Checkpoint& checkpoint, size_t segment) {
  std::vector<bool> is_data(
      static_cast<size_t>(checkpoint.segments()[segment].num_elements));
  for (size_t t = 0; t < checkpoint.tensors().size(); ++t) {
    for (const Fragment& fragment : checkpoint.fragments(t)) {
      if (fragment.segment == static_cast<int32_t>(segment)) {
        std::fill_n(is_data.begin() + fragment.segment_offset,
                    fragment.num_elements(), true);
      }
    }
  }
  return is_data;
}

size_t NonZeroPaddingBytes(const Checkpoint& checkpoint, size_t segment) {
  const std::vector<bool> is_data = DataOf(checkpoint, segment);
  const auto item =
      static_cast<size_t>(SizeBytes(checkpoint.segments()[segment].dtype));
  std::vector<std::byte> bytes(is_data.size() * item);
  checkpoint.ReadSegment(static_cast<int32_t>(segment), 0, bytes);
  size_t count = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    count += !is_data[i / item] && bytes[i] != std::byte{0} ? 1 : 0;
  }
  return count;
}

TEST_F(SinkTest, PaddingIsZero) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  for (const int32_t stage : {1, 3}) {
    // With offload, so that no buffer holds whole matrices.
    const auto there =
        To(*source, {.stage = stage, .num_ranks = 11, .offload = "cpu"});
    for (size_t s = 0; s < there->segments().size(); ++s) {
      EXPECT_EQ(NonZeroPaddingBytes(*there, s), 0u) << s;
    }
  }
}

TEST_F(SinkTest, Bf16OptimizerKeepsPartitions) {
  const auto source = OpenCase("s1-ws2-bf16-none-gacc32");
  // To the other class at stage 1, and back.
  Wish wish{.stage = 1, .num_ranks = 3};
  const auto zero1 = To(*source, wish);
  EXPECT_EQ(zero1->info().optimizer_class, "DeepSpeedZeroOptimizer");
  EXPECT_EQ(zero1->info().momentum->stored_form, "whole matrices");
  EXPECT_EQ(DifferenceOf(*source, *zero1), "");
  TargetLayout layout = LayoutOf(*zero1, wish);
  layout.optimizer_class = "BF16_Optimizer";
  const auto back = ConvertTo(*zero1, layout, root(), "tag");
  EXPECT_EQ(back->info().optimizer_class, "BF16_Optimizer");
  EXPECT_EQ(back->info().momentum->stored_form, "flat partition");
  EXPECT_EQ(DifferenceOf(*source, *back), "");
}

TEST_F(SinkTest, ScaledMomentumNeedsItsScaleToBecomeTrue) {
  const auto source = OpenCase("s2-ws2-fp16-none-scaledoubled");
  EXPECT_ERROR(Sink(*source, LayoutOf(*source, {.stage = 2, .offload = "cpu"})),
               ErrorCode::kUnsupported, "--momentum-scale");
}

// The momentum of the case is in units of 256, and the file says 512.
TEST_F(SinkTest, ScaledMomentumIsDividedByItsScale) {
  const auto source = OpenCase("s2-ws2-fp16-none-scaledoubled");
  TargetLayout layout =
      LayoutOf(*source, {.stage = 2, .num_ranks = 2, .offload = "cpu"});
  layout.momentum_scale = 256;
  const auto there = ConvertTo(*source, layout, root(), "tag");
  EXPECT_EQ(there->info().momentum->unit, MomentumUnit::kTrue);
  const TensorKey key{"odd.weight", std::string(kMomentum)};
  const size_t before = *FindTensor(*source, key);
  const size_t after = *FindTensor(*there, key);
  const ElementRange all{0, source->tensors()[before].shape.num_elements()};
  std::vector<float> expected = ReadTensorF32(*source, before, all);
  for (float& value : expected) {
    value /= 256;
  }
  EXPECT_EQ(there->tensors()[after].dtype, DType::kF32);
  EXPECT_EQ(ReadTensorF32(*there, after, all), expected);
}

TEST_F(SinkTest, AccumulatingMomentumBecomesDeepSpeeds) {
  const auto sound = OpenCase("s2-ws2-fp32-none-base");
  Hiding source(*sound);
  source.mutable_info().momentum->convention = MomentumConvention::kAccumulate;
  source.mutable_info().matrix_layouts = {{"odd.weight", "per_head[7]"}};
  EXPECT_THAT(Sink(source, LayoutOf(source, {.stage = 1}))->notes(),
              testing::IsSupersetOf({testing::HasSubstr("1 - mu"),
                                     testing::HasSubstr("per_head[7]")}));
  output_.reset();
  const auto there = To(source, {.stage = 3, .num_ranks = 2});
  const TensorKey key{"odd.weight", std::string(kMomentum)};
  const size_t before = *FindTensor(source, key);
  const ElementRange all{0, source.tensors()[before].shape.num_elements()};
  auto values = ReadTensorF32(source, before, all);
  for (float& m : values) m = static_cast<float>(double{m} * (1 - 0.95));
  EXPECT_EQ(ReadTensorF32(*there, *FindTensor(*there, key), all), values);
  source.mutable_info().groups[0].hyper_parameters.clear();
  EXPECT_ERROR(ConventionFactor(source.info(), 0), ErrorCode::kUnsupported,
               "does not tell its momentum");
}

TEST_F(SinkTest, TrueMomentumNeedsAScaleToBecomeScaled) {
  const auto source = OpenCase("s2-ws2-fp16-cpu-scalemid");
  TargetLayout layout = LayoutOf(*source, {.stage = 3, .num_ranks = 2});
  EXPECT_ERROR(Sink(*source, layout), ErrorCode::kUnsupported,
               "--momentum-scale");
  output_.reset();
  // The other way it stays as it is.
  const auto same = To(*source, {.stage = 3, .num_ranks = 4, .offload = "cpu"});
  EXPECT_EQ(DifferenceOf(*source, *same), "");
}

class SinkRefusalTest : public SinkTest {
 protected:
  void ExpectRefused(const TargetLayout& layout, ErrorCode code,
                     const std::string& text) {
    EXPECT_ERROR(Sink(*source_, layout), code, text);
    output_.reset();
    EXPECT_FALSE(fs::exists(root()));
  }

  std::unique_ptr<DeepSpeedCheckpoint> source_ =
      OpenCase("s2-ws2-bf16-none-base");
  TargetLayout layout_ = LayoutOf(*source_, {});
};

TEST_F(SinkRefusalTest, StateOnNvme) {
  layout_.offload = "nvme";
  ExpectRefused(layout_, ErrorCode::kUnsupported, "--offload cpu");
}

TEST_F(SinkRefusalTest, UnknownPrecision) {
  layout_.precision = "int8";
  ExpectRefused(layout_, ErrorCode::kInvalidArgument, "precision");
}

TEST_F(SinkRefusalTest, Bf16OptimizerAtStage2) {
  layout_.optimizer_class = "BF16_Optimizer";
  ExpectRefused(layout_, ErrorCode::kInvalidArgument, "stage 1");
}

TEST_F(SinkRefusalTest, AParameterThatTheSourceLacks) {
  layout_.specs[0].name = "unknown";
  ExpectRefused(layout_, ErrorCode::kInvalidArgument, "tensor unknown");
}

// As of a format that keeps no client state.
void ExpectSameState(const Checkpoint& before, const Checkpoint& after) {
  EXPECT_EQ(DifferenceOf(before, after), "");
  EXPECT_EQ(after.info().step, before.info().step);
  EXPECT_EQ(after.info().precision, before.info().precision);
  EXPECT_EQ(after.info().groups[0].hyper_parameters,
            before.info().groups[0].hyper_parameters);
  EXPECT_EQ(after.info().groups.back().step, before.info().groups.back().step);
}

TEST_F(SinkTest, WithoutCarriedStateDefaultsAreWritten) {
  for (const char* name :
       {"s2-ws2-bf16-none-base", "s3-ws2-bf16-none-tied",
        "s2-ws2-fp16-none-scaledoubled", "s2-ws2-fp32-none-base"}) {
    SCOPED_TRACE(name);
    const auto source = OpenCase(name);
    const Hiding bare(*source);
    for (const int32_t stage : {2, 3}) {
      ExpectSameState(*source, *To(bare, {.stage = stage, .num_ranks = 2}));
    }
  }
}

TEST_F(SinkTest, HyperParametersOfAnElasticSourceComeFromItsConfig) {
  const auto source = OpenCase("s1-ws2-bf16-none-elastic");
  const TargetLayout layout = LayoutOf(*source, {.stage = 2, .num_ranks = 2});
  EXPECT_THAT(Sink(*source, layout)->notes(),
              testing::Contains(testing::HasSubstr("elastic")));
  output_.reset();
  const auto there = ConvertTo(*source, layout, root(), "tag");
  const auto usual = OpenCase("s2-ws2-bf16-none-base");
  for (const auto& [name, value] : usual->info().groups[0].hyper_parameters) {
    EXPECT_THAT(there->info().groups[0].hyper_parameters,
                testing::Contains(std::pair(name, value)));
  }
}

TEST_F(SinkTest, LossesNameTheTensors) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  TargetLayout layout = LayoutOf(*source, {});
  EXPECT_TRUE(Sink(*source, layout)->losses().empty());
  output_.reset();
  // A target that trains fewer parameters: the state of one has no place.
  const std::string name = layout.specs[0].name;
  layout.specs.erase(layout.specs.begin());
  layout.partitioning = Partitioning::Build(layout.specs, layout.rule);
  const auto sink = Sink(*source, layout);
  ASSERT_EQ(sink->losses().size(), 2u);
  EXPECT_EQ(sink->losses()[0].kind, "momentum");
  EXPECT_EQ(sink->losses()[1].kind, "optimizer-state");
  EXPECT_EQ(sink->losses()[0].tensors,
            std::vector<size_t>{*FindTensor(*source, {name, "momentum"})});
}

TEST_F(SinkTest, NotesTellWhichClientStateStays) {
  const auto source = OpenCase("s3-ws2-bf16-none-base");
  const auto notes_of = [&](const Wish& wish) {
    const auto sink = Sink(*source, LayoutOf(*source, wish));
    return std::vector<std::string>(sink->notes().begin(), sink->notes().end());
  };
  EXPECT_THAT(notes_of({.stage = 3, .num_ranks = 4}),
              testing::ElementsAre(testing::HasSubstr("that of rank 0")));
  output_.reset();
  EXPECT_THAT(notes_of({.stage = 2, .num_ranks = 2}),
              testing::ElementsAre(testing::HasSubstr("left out")));
  output_.reset();
  EXPECT_THAT(notes_of({.stage = 3, .num_ranks = 2}), testing::IsEmpty());
  output_.reset();
  const auto shared = OpenCase("s2-ws2-bf16-none-base");
  EXPECT_THAT(
      Sink(*shared, LayoutOf(*shared, {.stage = 3, .num_ranks = 2}))->notes(),
      testing::ElementsAre(testing::HasSubstr("ranks 1 and up")));
}

std::vector<std::string> NamesOf(std::span<const SinkSegment> segments) {
  std::vector<std::string> names;
  for (const SinkSegment& segment : segments) {
    names.push_back(segment.name);
  }
  return names;
}

TEST_F(SinkTest, ThePlanIsWhatTheFilesSay) {
  const auto source = OpenCase("s3-ws2-bf16-none-frozen");
  const auto sink =
      Sink(*source, LayoutOf(*source, {.stage = 3, .num_ranks = 3}));
  ASSERT_EQ(sink->num_files(), 6u);
  for (size_t i = 0; i < sink->num_files(); ++i) {
    const std::vector<SinkSegment> plan = sink->PlanFile(i);
    EXPECT_EQ(NamesOf(plan), NamesOf(sink->CreateFile(i)->segments()));
    uint64_t bytes = 0;
    for (const SinkSegment& segment : plan) {
      bytes += static_cast<uint64_t>(segment.num_elements *
                                     SizeBytes(segment.dtype));
    }
    EXPECT_EQ(bytes, PayloadBytes(plan));
  }
}

TEST_F(SinkTest, NothingIsThereBeforeCommit) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  {
    const auto sink = Sink(*source, LayoutOf(*source, {}));
    sink->CreateFile(0);
    EXPECT_FALSE(fs::exists(fs::path(root()) / "tag"));
  }
  output_.reset();
  EXPECT_FALSE(fs::exists(root()));
}

TEST_F(SinkTest, AnExistingTagIsReplacedOnRequestAlone) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  const TargetLayout layout = LayoutOf(*source, {});
  os::OutputRoot output(PosixFileSystem(), root());
  const auto convert = [&](const SinkOptions& options) {
    const auto sink = MakeSink(*source, layout, output, options);
    FillAndCommit(*source, *sink);
  };
  convert({.tag = "one"});
  EXPECT_ERROR(convert({.tag = "one"}), ErrorCode::kInvalidArgument,
               "exists already");
  testutil::WriteBytes(fs::path(root()) / "one/old.txt", "old");
  convert({.tag = "one", .overwrite = true});
  EXPECT_FALSE(fs::exists(fs::path(root()) / "one/old.txt"));
  EXPECT_FALSE(fs::exists(fs::path(root()) / "latest"));
}

TEST_F(SinkTest, RanksWithoutAnElement) {
  const auto source = OpenCase("s2-ws2-bf16-none-muononly");
  for (const int32_t stage : {1, 2, 3}) {
    // 7 x 13 is the smallest matrix; many ranks own padding only.
    const auto there = To(*source, {.stage = stage, .num_ranks = 300});
    EXPECT_EQ(DifferenceOf(*source, *there), "");
  }
}

}  // namespace
}  // namespace muonstore::deepspeed
