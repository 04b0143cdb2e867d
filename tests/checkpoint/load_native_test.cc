// Stores from native checkpoints: what a conversion wrote loads as its source.

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/native/checkpoint.h"
#include "muonstore/load.h"
#include "muonstore/open.h"
#include "tests/native/save.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

std::unique_ptr<StateStore> Load(const Checkpoint& checkpoint,
                                 std::shared_ptr<Communicator> ranks,
                                 int32_t stage) {
  std::vector<ParameterSpec> specs = SpecsOf(checkpoint);
  Partitioning partitioning =
      Partitioning::Build(specs, {.stage = stage, .num_ranks = ranks->size()});
  auto store = std::make_unique<StateStore>(
      std::move(specs), std::move(partitioning),
      StoreOptions{.communicator = std::move(ranks)});
  LoadCheckpoint(*store, checkpoint);
  return store;
}

void ExpectEqual(StateStore& a, StateStore& b) {
  ASSERT_EQ(a.parameters().size(), b.parameters().size());
  for (size_t i = 0; i < a.parameters().size(); ++i) {
    const ParameterSpec& spec = a.parameters()[i];
    EXPECT_EQ(b.parameters()[i].name, spec.name);
    for (const StateKind& kind : a.kinds(static_cast<int32_t>(i))) {
      EXPECT_TRUE(a.Gather(spec.name, kind).data ==
                  b.Gather(spec.name, kind).data)
          << spec.name << "/" << kind;
    }
  }
  EXPECT_EQ(a.record().clipping, b.record().clipping);
  EXPECT_EQ(a.record().steps, b.record().steps);
  EXPECT_EQ(a.record().group_steps, b.record().group_steps);
}

class LoadNative : public testing::TestWithParam<const char*> {};

TEST_P(LoadNative, IsTheSameAsLoadingItsSource) {
  const auto source = OpenCheckpoint(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase(GetParam()).folder / "ckpt").string());
  const testutil::Scratch scratch;
  const std::string folder = native::Save(
      PosixFileSystem(), scratch.path().string(), {.tag = "t"}, *source,
      native::LayoutOf(*source, {.stage = 3, .num_ranks = 3}));
  testutil::RunConnectedRanks(
      3, [&](const std::shared_ptr<Communicator>& ranks) {
        const auto saved = OpenCheckpoint(PosixFileSystem(), folder);
        const auto from_source = Load(*source, ranks, 2);
        const auto from_saved = Load(*saved, ranks, 2);
        ExpectEqual(*from_source, *from_saved);
        from_source->Close();
        from_saved->Close();
      });
}

INSTANTIATE_TEST_SUITE_P(
    Cases, LoadNative,
    testing::Values("s2-ws2-bf16-none-base", "s1-ws2-bf16-none-gacc32",
                    "s3-ws4-bf16-cpu-base", "s1-ws2-fp32-cpu-base"),
    [](const auto& test) { return testutil::TestName(test.param); });

TEST(LoadNativeRuns, OtherMatricesThanTheRunSawAreNoted) {
  const auto source = OpenCheckpoint(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder / "ckpt")
          .string());
  const testutil::Scratch scratch;
  const auto saved = OpenCheckpoint(
      PosixFileSystem(),
      native::Save(PosixFileSystem(), scratch.path().string(), {.tag = "t"},
                   *source, native::LayoutOf(*source, {.stage = 2})));
  std::vector<ParameterSpec> specs = SpecsOf(*saved);
  for (const bool is_other : {false, true}) {
    for (ParameterSpec& spec : specs) {
      if (is_other && spec.name == "odd.weight") {
        spec.layout = MatrixLayout::PerHead(7);
      }
    }
    StateStore store(
        specs, Partitioning::Build(specs, {.stage = 2, .num_ranks = 1}), {});
    const LoadReport report = LoadCheckpoint(store, *saved);
    const auto note = testing::Contains(
        testing::HasSubstr("odd.weight (whole, here per_head[7])"));
    if (is_other) {
      EXPECT_THAT(report.notes, note);
    } else {
      EXPECT_THAT(report.notes, testing::Not(note));
    }
  }
}

}  // namespace
}  // namespace muonstore
