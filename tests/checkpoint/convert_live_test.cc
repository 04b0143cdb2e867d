// A saved store in other formats, and back: nothing is lost on the way.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/make_sink.h"
#include "converters/target_layout.h"
#include "muonstore/convert.h"
#include "muonstore/open.h"
#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "src/checkpoint/store_checkpoint.h"
#include "src/os/output_root.h"
#include "src/store/snapshot.h"
#include "src/store/store_impl.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testing::IsEmpty;
using testutil::LiveRun;
using testutil::StateBytes;

// DeepSpeed runs have one precision.
std::vector<ParameterSpec> Bf16Model() {
  std::vector<ParameterSpec> model = testutil::SmallModel();
  for (ParameterSpec& spec : model) spec.weight_dtype = DType::kBF16;
  return model;
}

class ConvertLiveTest : public testing::Test {
 protected:
  std::string native() const { return (scratch_ / "native").string(); }
  std::string other() const { return (scratch_ / "other").string(); }

  void ToDeepSpeed(const Checkpoint& source, int32_t stage,
                   int32_t num_ranks) const {
    LayoutRequest request;
    request.settings.stage = stage;
    request.settings.num_ranks = num_ranks;
    request.zero_init = stage == 3 ? std::optional(false) : std::nullopt;
    const TargetLayout layout = ChooseLayout(source, request).layout;
    os::OutputRoot root(PosixFileSystem(), other());
    const auto sink =
        MakeSink(source, layout, root,
                 {.format = TargetFormat::kDeepSpeed, .tag = "ds"});
    const ConversionPlan plan = PlanConversion(source, *sink);
    EXPECT_THAT(plan.Refused({}), IsEmpty());
    Convert(source, *sink, plan, {});
    os::StageLatest(root, "ds")->Commit();
  }

  // Tensors and steps; DeepSpeed's runs clip in a way of their own.
  void ExpectResumes(const StateBytes& expected, int32_t num_ranks,
                     int32_t stage) const {
    testutil::RunConnectedRanks(num_ranks, [&](const auto& ranks) {
      LiveRun run(ranks, {.stage = stage, .model = Bf16Model()});
      const ResumeReport report = Resume(run.store(), other());
      EXPECT_EQ(report.tag, "ds");
      EXPECT_TRUE(testutil::AllState(run.store()) == expected);
      EXPECT_EQ(run.store().record().steps, 5);
      EXPECT_EQ(run.store().record().skipped_steps, 1);
      EXPECT_EQ(run.store().record().clipping, ClippingMode::kDeepSpeed);
      run.Close();
    });
  }

  testutil::Scratch scratch_;
};

TEST_F(ConvertLiveTest, ASaveOfTwoRanksBecomesDeepSpeedsAndIsResumed) {
  StateBytes expected;
  {
    LiveRun run(MakeSingleCommunicator(), {.model = Bf16Model()});
    run.Steps(0, 6);
    expected = testutil::AllState(run.store());
  }
  testutil::RunConnectedRanks(2, [&](const auto& ranks) {
    LiveRun run(ranks, {.stage = 2, .model = Bf16Model()});
    run.Steps(0, 6);
    Saver(run.store(), native()).Save("t", {.groups = run.groups()});
    run.Close();
  });
  ToDeepSpeed(*OpenCheckpoint(PosixFileSystem(), native()), 3, 2);
  EXPECT_TRUE(VerifyCheckpoint(PosixFileSystem(), other()).whole());
  ExpectResumes(expected, 3, 1);
}

TEST_F(ConvertLiveTest, AStoreIsASourceOfAnySink) {
  StateBytes expected;
  {
    LiveRun run(MakeSingleCommunicator(), {.model = Bf16Model()});
    run.Steps(0, 6);
    const auto snapshot = TakeSnapshot(run.store().impl(), {});
    const StoreCheckpoint source(run.store(), *snapshot, {});
    ToDeepSpeed(source, 2, 3);
    expected = testutil::AllState(run.store());
  }
  // Its threads are gone: processes are forked next.
  ExpectResumes(expected, 2, 3);
}

TEST_F(ConvertLiveTest, ElementsOfOtherRanksAreNotAtHand) {
  testutil::RunConnectedRanks(2, [](const auto& ranks) {
    LiveRun run(ranks, {.stage = 1});
    {
      const auto snapshot = TakeSnapshot(run.store().impl(), {});
      const StoreCheckpoint source(run.store(), *snapshot, {});
      const auto per_rank = static_cast<int32_t>(source.segments().size() / 2);
      std::vector<std::byte> bytes(4);
      source.ReadSegment(ranks->rank() * per_rank, 0, bytes);
      EXPECT_EQ(CodeOf([&] {
                  source.ReadSegment((1 - ranks->rank()) * per_rank, 0, bytes);
                }),
                ErrorCode::kUnsupported);
      EXPECT_EQ(CodeOf([&] {
                  source.ReadSegment(ranks->rank() * per_rank,
                                     source.segments()[0].num_elements, bytes);
                }),
                ErrorCode::kInvalidArgument);
    }
    run.Close();
  });
}

}  // namespace
}  // namespace muonstore
