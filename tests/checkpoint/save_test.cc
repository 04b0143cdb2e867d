// What a save writes, refuses and leaves alone.

#include "muonstore/save.h"

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/load.h"
#include "muonstore/open.h"
#include "muonstore/resume.h"
#include "muonstore/run_options.h"
#include "src/os/output_root.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;
using testing::SizeIs;
using testutil::LiveRun;
using testutil::StateBytes;

class SaveTest : public testing::Test {
 protected:
  std::string root() const { return (scratch_ / "root").string(); }
  std::unique_ptr<Checkpoint> Open(const std::string& tag) const {
    return OpenCheckpoint(PosixFileSystem(), root(), {.tag = tag});
  }
  std::vector<std::string> Names(const std::string& folder) const {
    return std::filesystem::exists(scratch_ / folder)
               ? PosixFileSystem()->List((scratch_ / folder).string())
               : std::vector<std::string>();
  }

  testutil::Scratch scratch_;
};

std::vector<float> ValuesOf(const Checkpoint& checkpoint, const char* name,
                            const char* kind) {
  const auto tensor = FindTensor(checkpoint, {name, StateKind(kind)});
  return ReadTensorF32(checkpoint, tensor.value(),
                       {0, checkpoint.tensors()[*tensor].shape.num_elements()});
}

TEST_F(SaveTest, TheManifestTellsTheRun) {
  LiveRun run(MakeSingleCommunicator(), {});
  run.store().record().convention = MomentumConvention::kAccumulate;
  run.Steps(0, 6);
  run.store().record().clipping = ClippingMode::kOff;
  std::vector<GroupHyperParameters> groups = run.groups();
  groups[0].scale = MuonScaleMode::kMatchRms;
  groups[1].adam_order = AdamOrder::kDeepSpeed;
  groups[1].eps = 1e-5;
  Saver saver(run.store(), root());
  saver.Save("t", {.groups = groups,
                   .scalars = {{"seed", int64_t{7}}, {"loss", 0.25}}});
  const auto checkpoint = Open("t");
  const CheckpointInfo& info = checkpoint->info();
  EXPECT_EQ(info.step, 6);
  EXPECT_EQ(info.precision, "bf16");
  EXPECT_THAT(info.counters,
              Contains(Pair("skipped_steps", Scalar(int64_t{1}))));
  EXPECT_THAT(info.counters, Contains(Pair("client.seed", Scalar(int64_t{7}))));
  ASSERT_TRUE(info.momentum.has_value());
  EXPECT_EQ(info.momentum->convention, MomentumConvention::kAccumulate);
  EXPECT_EQ(info.momentum->unit, MomentumUnit::kTrue);
  ASSERT_THAT(info.groups, SizeIs(2));
  EXPECT_EQ(info.groups[1].step, 5);
  EXPECT_EQ(info.groups[0].num_parameters, 4);
  EXPECT_THAT(info.frozen, ElementsAre("frozen.weight"));

  const RunOptions options = RunOptionsOf(*checkpoint);
  EXPECT_EQ(options.executor.groups[0].lr, groups[0].lr);
  EXPECT_EQ(options.executor.groups[0].scale, MuonScaleMode::kMatchRms);
  EXPECT_EQ(options.executor.groups[1].eps, 1e-5);
  EXPECT_EQ(options.executor.groups[1].beta2, groups[1].beta2);
  EXPECT_EQ(options.executor.groups[1].adam_order, AdamOrder::kDeepSpeed);

  const auto resumed = testutil::MakeStepStore(MakeSingleCommunicator(), {});
  const ResumeReport report = Resume(*resumed, root());
  EXPECT_EQ(resumed->record().clipping, ClippingMode::kOff);
  EXPECT_EQ(resumed->record().convention, MomentumConvention::kAccumulate);
  EXPECT_THAT(report.scalars, ElementsAre(Pair("seed", Scalar(int64_t{7})),
                                          Pair("loss", Scalar(0.25))));
}

TEST_F(SaveTest, ParametersKeepTheirMatrixLayouts) {
  const auto store = testutil::MakeStepStore(MakeSingleCommunicator(), {});
  Saver(*store, root()).Save("t");
  const std::vector<ParameterSpec> specs = SpecsOf(*Open("t"));
  for (const ParameterSpec& spec : specs) {
    const ParameterSpec& own = store->parameters()[static_cast<size_t>(
        store->FindParameter(spec.name))];
    EXPECT_EQ(spec.layout, own.layout) << spec.name;
    EXPECT_EQ(spec.shape, own.shape);
    EXPECT_EQ(spec.optimizer, own.optimizer);
    EXPECT_EQ(spec.weight_dtype, own.weight_dtype);
  }
  EXPECT_THAT(specs, SizeIs(6));  // All but the frozen one.
}

// The compute weight is no rounded master where a lease wrote it.
TEST_F(SaveTest, AWeightOfALeaseIsKept) {
  auto store = testutil::MakeStepStore(MakeSingleCommunicator(), {});
  const ParameterSpec& spec = store->parameters()[2];
  const std::vector<float> values(
      static_cast<size_t>(spec.shape.num_elements()), 3.5F);
  store->Set(spec.name, StateKind(kWeight), values);
  Saver(*store, root()).Save("t");
  EXPECT_THAT(ValuesOf(*Open("t"), spec.name.c_str(), "weight"),
              testing::Each(3.5F));
  auto other = testutil::MakeStepStore(MakeSingleCommunicator(), {});
  Resume(*other, root());
  EXPECT_TRUE(testutil::AllState(*other) == testutil::AllState(*store));
}

TEST_F(SaveTest, AnAsynchronousSaveHoldsTheBytesOfItsCall) {
  const auto store = testutil::MakeStepStore(MakeSingleCommunicator(), {});
  const StateBytes before = testutil::AllState(*store);
  Saver saver(*store, root());
  const SaveHandle handle = saver.Save("t", {.asynchronous = true});
  for (const ParameterSpec& spec : store->parameters()) {
    for (const StateKind& kind :
         store->kinds(store->FindParameter(spec.name))) {
      if (kind == kGradient) continue;
      store->Set(spec.name, kind, testutil::UniqueValues(spec, 3));
    }
  }
  const StateBytes after = testutil::AllState(*store);
  handle.Wait();
  EXPECT_TRUE(handle.done());
  saver.Save("t2");
  const auto resumed = testutil::MakeStepStore(MakeSingleCommunicator(), {});
  Resume(*resumed, root(), {.tag = "t"});
  EXPECT_TRUE(testutil::AllState(*resumed) == before);
  Resume(*resumed, root());
  EXPECT_TRUE(testutil::AllState(*resumed) == after);
}

TEST_F(SaveTest, ConsecutiveSavesDiffer) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  std::vector<StateBytes> states;
  for (int64_t step = 0; step < 3; ++step) {
    run.Steps(step, step + 1);
    states.push_back(run.State());
    saver.Save("step" + std::to_string(step), {.asynchronous = step == 1});
  }
  saver.Close();
  for (size_t i = 0; i < states.size(); ++i) {
    LiveRun resumed(MakeSingleCommunicator(), {});
    Resume(resumed.store(), root(), {.tag = "step" + std::to_string(i)});
    EXPECT_TRUE(resumed.State() == states[i]) << i;
    EXPECT_TRUE(i == 0 || states[i] != states[i - 1]);
  }
}

TEST_F(SaveTest, ATagIsReplacedOnlyWhenAsked) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  saver.Save("t");
  run.Steps(0, 1);
  EXPECT_EQ(CodeOf([&] { saver.Save("t"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Open("t")->info().step, 0);
  const SaveHandle refused = saver.Save("t", {.asynchronous = true});
  EXPECT_EQ(CodeOf([&] { refused.Wait(); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { refused.report(); }), ErrorCode::kInvalidArgument);
  saver.Save("t", {.overwrite = true});
  EXPECT_EQ(Open("t")->info().step, 1);
  EXPECT_TRUE(VerifyCheckpoint(PosixFileSystem(), root()).whole());
  EXPECT_THAT(Names("root/t"), SizeIs(4));  // Nothing of the save before.
}

TEST_F(SaveTest, OptionsWithoutAMeaningAreRefused) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  EXPECT_EQ(CodeOf([&] { saver.Save("a/b"); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { saver.Save("latest"); }), ErrorCode::kInvalidArgument);
  for (const SaveOptions& options :
       {SaveOptions{.zstd_level = -1}, SaveOptions{.zstd_level = 23},
        SaveOptions{.num_threads = 0}, SaveOptions{.num_threads = 65},
        SaveOptions{.keep = -1}, SaveOptions{.groups = {{}, {}, {}}},
        SaveOptions{.scalars = {{"", 1.0}}},
        SaveOptions{.scalars = {{"a", 1.0}, {"a", 2.0}}}}) {
    EXPECT_EQ(CodeOf([&] { saver.Save("t", options); }),
              ErrorCode::kInvalidArgument);
  }
  saver.Close();
  EXPECT_EQ(CodeOf([&] { saver.Save("t"); }), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(root()));
}

TEST_F(SaveTest, APoisonedStoreIsNotSaved) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  run.store().Poison("a test");
  EXPECT_EQ(CodeOf([&] { saver.Save("t"); }), ErrorCode::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(root()));
}

TEST_F(SaveTest, AWriteLeaseIsInTheWay) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  {
    const WriteLease lease = run.store().Write("norm.weight", "master");
    EXPECT_EQ(CodeOf([&] { saver.Save("t"); }), ErrorCode::kInvalidArgument);
  }
  saver.Save("t");
  EXPECT_EQ(Open("t")->info().step, 0);
}

TEST_F(SaveTest, AnotherWriterIsRefusedByName) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  {
    const os::OutputRoot other(PosixFileSystem(), root());
    const auto error = ErrorOf([&] { saver.Save("t"); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error->what(), HasSubstr("another process writes"));
  }
  saver.Save("t");
}

TEST_F(SaveTest, LatestIsSetOnlyWhenAsked) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  saver.Save("a");
  saver.Save("b", {.set_latest = false});
  EXPECT_EQ(testutil::ReadBytes(scratch_ / "root/latest"), "a");
}

TEST_F(SaveTest, OldTagsArePruned) {
  LiveRun run(MakeSingleCommunicator(), {});
  Saver saver(run.store(), root());
  for (int64_t step = 0; step < 4; ++step) {
    run.Steps(step, step + 1);
    saver.Save("s" + std::to_string(step));
  }
  std::filesystem::create_directory(scratch_ / "root/notes");
  const SaveHandle handle =
      saver.Save("again", {.asynchronous = true, .keep = 2});
  EXPECT_THAT(handle.report().pruned, ElementsAre("s0", "s1", "s2"));
  EXPECT_THAT(Names("root"), ElementsAre("again", "latest", "notes", "s3"));
}

// Blocks one write until it is told to go on.
class SlowFileSystem : public testutil::ForwardingFileSystem {
 public:
  SlowFileSystem() : ForwardingFileSystem(PosixFileSystem()) {}

  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    if (path.find("rank-") != std::string::npos) go_on_.get_future().wait();
    return base().CreateFile(path);
  }
  void GoOn() { go_on_.set_value(); }

 private:
  std::promise<void> go_on_;
};

TEST_F(SaveTest, AStoreThatIsPoisonedMeanwhileIsSavedAsItWas) {
  LiveRun run(MakeSingleCommunicator(), {});
  run.Steps(0, 2);
  const StateBytes state = run.State();
  auto slow = std::make_shared<SlowFileSystem>();
  Saver saver(run.store(), root(), slow);
  const SaveHandle handle = saver.Save("t", {.asynchronous = true});
  EXPECT_FALSE(handle.done());
  run.store().Poison("a test");
  slow->GoOn();
  handle.Wait();
  LiveRun resumed(MakeSingleCommunicator(), {});
  Resume(resumed.store(), root());
  EXPECT_TRUE(resumed.State() == state);
}

TEST_F(SaveTest, RanksThatDisagreeAreRefused) {
  testutil::RunConnectedRanks(2, [&](const auto& ranks) {
    LiveRun run(ranks, {});
    Saver saver(run.store(), root());
    const std::string tag = ranks->rank() == 0 ? "a" : "b";
    EXPECT_EQ(CodeOf([&] { saver.Save(tag); }), ErrorCode::kInvalidArgument);
    saver.Save("both");
    saver.Close();
    run.Close();
  });
  EXPECT_THAT(Names("root"), ElementsAre("both", "latest"));
}

// Rank 0 does not see what rank 1 wrote.
TEST_F(SaveTest, RootsThatAreNotOneFolderAreRefused) {
  testutil::RunConnectedRanks(2, [&](const auto& ranks) {
    LiveRun run(ranks, {});
    const std::string own = root() + std::to_string(ranks->rank());
    std::filesystem::create_directories(own + "/t");
    Saver saver(run.store(), own);
    const auto error = ErrorOf([&] { saver.Save("t", {.overwrite = true}); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kUnavailable);
    EXPECT_THAT(error->what(), HasSubstr("one folder for all ranks"));
    EXPECT_THAT(PosixFileSystem()->List(own + "/t"), IsEmpty());
    saver.Close();
    run.Close();
  });
}

}  // namespace
}  // namespace muonstore
