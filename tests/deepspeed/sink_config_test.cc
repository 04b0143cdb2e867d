// What a target says of its run, and what of the source it cannot say.
#include <optional>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/sink.h"
#include "muonstore/file_system.h"
#include "src/os/output_root.h"
#include "tests/deepspeed/convert_in_test.h"
#include "tests/deepspeed/crafted.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

// DeepSpeed makes the class from the config: its stage is the target run's.
TEST(SinkConfig, Bf16OptimizerHasTheStageOfItsRunsConfig) {
  const testutil::Scratch scratch;
  const auto source = DeepSpeedCheckpoint::Open(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder /
       "ckpt/step5")
          .string(),
      {});
  TargetLayout layout = LayoutOf(*source, {.stage = 1, .num_ranks = 2});
  layout.optimizer_class = "BF16_Optimizer";
  for (const auto& [asked, stage] :
       {std::pair(std::optional<int32_t>(), 1), {std::optional(0), 0}}) {
    layout.config_stage = asked;
    const auto there =
        ConvertTo(*source, layout, (scratch / "root").string(), "tag");
    EXPECT_EQ(there->info().optimizer_class, "BF16_Optimizer");
    const auto model = *there->carried_state()->rank(0).model_states;
    EXPECT_EQ(model.value()
                  .Get("ds_config")
                  .Get("zero_optimization")
                  .Get("stage")
                  .AsInt(),
              stage);
  }
}

// Of the optimizer, on whichever rank: the target has no place for it.
TEST(SinkConfig, ValuesThatDeepSpeedDoesNotKnowAreALoss) {
  Crafted crafted(2);
  crafted.zero(1).Set("ema", F32(4));
  crafted.Open();
  const auto source =
      DeepSpeedCheckpoint::Open(PosixFileSystem(), crafted.tag(), {});
  const TargetLayout layout = LayoutOf(*source, {.stage = 2, .num_ranks = 3});
  const testutil::Scratch scratch;
  os::OutputRoot root(PosixFileSystem(), (scratch / "root").string());
  const auto sink = MakeSink(*source, layout, root, {.tag = "tag"});
  ASSERT_EQ(sink->losses().size(), 1U);
  EXPECT_EQ(sink->losses()[0].kind, "carried");
  EXPECT_FALSE(sink->losses()[0].is_chosen);
  EXPECT_THAT(sink->losses()[0].message, testing::HasSubstr("ema"));
}

}  // namespace
}  // namespace muonstore::deepspeed
