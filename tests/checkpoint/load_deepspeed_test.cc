// Every DeepSpeed fixture into stores of other stages and rank counts, compared
// element by element with what the reader says.

#include <cstring>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/load.h"
#include "muonstore/open.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/golden.h"

namespace muonstore {
namespace {

using testutil::DeepSpeedTag;
using testutil::Golden;

// fp16 runs whose momentum needs a scale that the file does not prove.
constexpr double kGivenScale = 256;

struct Target {
  int32_t stage = 2;
  int32_t num_ranks = 1;
  int64_t sub_group_size = 1'000'000'000;
};

std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << "stage " << target.stage << ", " << target.num_ranks
             << " ranks";
}

constexpr Target kTargets[] = {{1, 1}, {1, 3},      {2, 2}, {2, 4},
                               {3, 1}, {3, 3, 700}, {3, 4}};

// Options under which every fixture loads.
LoadOptions Lenient() {
  return {.momentum_scale = kGivenScale, .allow_missing_state = true};
}

std::unique_ptr<Checkpoint> Open(const DeepSpeedTag& tag) {
  return deepspeed::DeepSpeedCheckpoint::Open(
      PosixFileSystem(), tag.path().string(), {.allow_loss = true});
}

StateStore MakeStore(const Checkpoint& checkpoint,
                     std::shared_ptr<Communicator> communicator,
                     const Target& target) {
  std::vector<ParameterSpec> specs = SpecsOf(checkpoint);
  const ZeroRule rule{.stage = target.stage,
                      .num_ranks = target.num_ranks,
                      .sub_group_size = target.sub_group_size};
  Partitioning partitioning = Partitioning::Build(specs, rule);
  return StateStore(std::move(specs), std::move(partitioning),
                    {.communicator = std::move(communicator)});
}

// The value that the store should have, f32 bits; zeros for lost elements.
std::vector<float> ExpectedF32(const Checkpoint& checkpoint,
                               const ParameterSpec& spec,
                               const StateKind& kind) {
  const auto count = static_cast<size_t>(spec.shape.num_elements());
  const auto index = FindTensor(checkpoint, {spec.name, kind});
  if (!index) return std::vector<float>(count, 0.0F);
  const CheckpointTensor& tensor = checkpoint.tensors()[*index];
  const int64_t held = tensor.missing.empty() ? spec.shape.num_elements()
                                              : tensor.missing.front().begin;
  double scale = 1;
  const auto& momentum = checkpoint.info().momentum;
  if (kind == kMomentum && momentum->unit == MomentumUnit::kLossScaled) {
    scale = momentum->unit_scale.value_or(kGivenScale);
  }
  std::vector<float> values;
  for (const double value : ReadTensorF64(checkpoint, *index, {0, held})) {
    values.push_back(static_cast<float>(value / scale));
  }
  values.resize(count, 0.0F);
  return values;
}

std::vector<std::byte> ExpectedBytes(const Checkpoint& checkpoint,
                                     const ParameterSpec& spec,
                                     const StateKind& kind) {
  const auto count = static_cast<size_t>(spec.shape.num_elements());
  const DType dtype = kind == kWeight ? spec.weight_dtype : DType::kF32;
  std::vector<std::byte> bytes(count * static_cast<size_t>(SizeBytes(dtype)));
  if (kind == kWeight) {
    ReadTensor(checkpoint, *FindTensor(checkpoint, {spec.name, kind}),
               {0, spec.shape.num_elements()}, bytes);
  } else {
    ConvertFromF32(ExpectedF32(checkpoint, spec, kind), dtype, bytes);
  }
  return bytes;
}

// Every tensor of the store on this rank, gathered so that pieces which no rank
// holds would show.
void ExpectLoaded(StateStore& store, const Checkpoint& checkpoint) {
  for (size_t i = 0; i < store.parameters().size(); ++i) {
    const ParameterSpec& spec = store.parameters()[i];
    if (spec.shape.num_elements() == 0) continue;
    for (const StateKind& kind : store.kinds(static_cast<int32_t>(i))) {
      if (kind == kGradient) continue;
      const GatheredTensor loaded = store.Gather(spec.name, kind);
      EXPECT_TRUE(loaded.data == ExpectedBytes(checkpoint, spec, kind))
          << spec.name << "/" << kind;
      EXPECT_EQ(store.generation(spec.name, kind), 1U) << spec.name;
    }
  }
}

void ExpectSteps(const StateStore& store, const Checkpoint& checkpoint,
                 const Golden& golden) {
  const StoreRecord& record = store.record();
  int64_t skipped = 0;
  for (const auto& [name, value] : checkpoint.info().counters) {
    if (name == "skipped_steps") skipped = std::get<int64_t>(value);
  }
  EXPECT_EQ(record.skipped_steps, skipped);
  EXPECT_EQ(record.steps + record.skipped_steps, *checkpoint.info().step);
  for (const ParameterSpec& spec : store.parameters()) {
    const auto step = golden.find("step/" + spec.name);
    if (step == golden.end()) continue;
    EXPECT_EQ(static_cast<double>(
                  record.group_steps.at(static_cast<size_t>(spec.group))),
              step->second.doubles.at(0))
        << spec.name;
  }
}

class LoadDeepSpeed : public testing::TestWithParam<DeepSpeedTag> {};

TEST_P(LoadDeepSpeed, IntoEveryPartitioning) {
  const Golden golden = ReadGolden(GetParam());
  for (const Target& target : kTargets) {
    SCOPED_TRACE(testing::Message() << target);
    testutil::RunConnectedRanks(
        target.num_ranks, [&](const std::shared_ptr<Communicator>& ranks) {
          const auto checkpoint = Open(GetParam());
          StateStore store = MakeStore(*checkpoint, ranks, target);
          const LoadReport report =
              LoadCheckpoint(store, *checkpoint, Lenient());
          ExpectLoaded(store, *checkpoint);
          ExpectSteps(store, *checkpoint, golden);
          EXPECT_FALSE(report.notes.empty());
          store.Close();
        });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, LoadDeepSpeed,
                         testing::ValuesIn(testutil::DeepSpeedTags()),
                         [](const auto& test) {
                           return testutil::TestName(test.param.ToString());
                         });

LoadReport LoadAlone(const std::string& case_name, const LoadOptions& options,
                     StoreRecord& record) {
  const auto checkpoint = deepspeed::DeepSpeedCheckpoint::Open(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase(case_name).folder / "ckpt/step5").string(),
      {.allow_loss = true});
  StateStore store = MakeStore(*checkpoint, nullptr, {});
  LoadReport report = LoadCheckpoint(store, *checkpoint, options);
  record = store.record();
  return report;
}

std::string Join(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(LoadDeepSpeedRuns, ClipAsTheRunDid) {
  StoreRecord record;
  LoadReport report = LoadAlone("s2-ws2-bf16-none-base", {}, record);
  EXPECT_EQ(record.clipping, ClippingMode::kDeepSpeed);
  EXPECT_NE(Join(report.notes).find("clipping mode is deepspeed"),
            std::string::npos);
  report = LoadAlone("s1-ws2-bf16-none-gacc32", {}, record);
  EXPECT_EQ(record.clipping, ClippingMode::kGradients);
  EXPECT_NE(Join(report.notes).find("BF16_Optimizer"), std::string::npos);
}

TEST(LoadDeepSpeedRuns, ClipAsTheCallerSays) {
  StoreRecord record;
  const LoadReport report = LoadAlone(
      "s2-ws2-bf16-none-base", {.clipping = ClippingMode::kGradients}, record);
  EXPECT_EQ(record.clipping, ClippingMode::kGradients);
  EXPECT_EQ(Join(report.notes).find("clipping"), std::string::npos);
}

TEST(LoadDeepSpeedRuns, NeedTheScaleOfTheirMomentum) {
  StoreRecord record;
  try {
    LoadAlone("s2-ws2-fp16-none-scaledoubled", {}, record);
    FAIL() << "loaded without a scale";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(error.message().find("LoadOptions::momentum_scale"),
              std::string::npos);
    EXPECT_NE(error.place().found.find("512"), std::string::npos);
  }
  const LoadReport report = LoadAlone("s2-ws2-fp16-none-scaledoubled",
                                      {.momentum_scale = 256}, record);
  EXPECT_NE(Join(report.notes).find("loss scale 256, which LoadOptions gave"),
            std::string::npos);
}

TEST(LoadDeepSpeedRuns, WithoutMomentumAreRefusedOrStartAtZero) {
  StoreRecord record;
  try {
    LoadAlone("s2-ws2-bf16-cpu-v0189", {}, record);
    FAIL() << "loaded without momentum";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_NE(error.place().tensor.find("/momentum"), std::string::npos);
  }
  const LoadReport report =
      LoadAlone("s2-ws2-bf16-cpu-v0189", {.allow_missing_state = true}, record);
  EXPECT_EQ(report.missing.size(), 9U);
}

TEST(LoadDeepSpeedRuns, ThatLostAnElementAreRefusedOrListed) {
  StoreRecord record;
  try {
    LoadAlone("s1-ws2-bf16-none-elastic", {}, record);
    FAIL() << "loaded a truncated momentum";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  }
  const LoadReport report = LoadAlone("s1-ws2-bf16-none-elastic",
                                      {.allow_missing_state = true}, record);
  ASSERT_EQ(report.missing.size(), 1U);
  EXPECT_NE(report.missing[0].find("/momentum elements "), std::string::npos);
}

TEST(LoadDeepSpeedRuns, HeadersOfOneRankAreNoCheckpoint) {
  const auto headers = OpenCheckpoint(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder / "ckpt")
          .string(),
      {.headers_of_rank_zero_only = true});
  StateStore store = MakeStore(*headers, nullptr, {});
  try {
    LoadCheckpoint(store, *headers);
    FAIL() << "loaded from headers";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  }
  EXPECT_FALSE(store.poisoned());
}

}  // namespace
}  // namespace muonstore
