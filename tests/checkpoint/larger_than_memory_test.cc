// A run whose state is four times the memory that it may use.

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/native/hash.h"
#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/executor/step_model.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

// On a machine that does other work, too.
const testutil::RunRanksOptions kPatient{.timeout = std::chrono::minutes(4)};

constexpr int64_t kMatrices = 128;
constexpr int64_t kWidth = 512;
// f32 master, momentum and gradient, and a bf16 weight.
constexpr uint64_t kStateBytes = kMatrices * kWidth * kWidth * 14;

std::vector<ParameterSpec> Model() {
  std::vector<ParameterSpec> model;
  for (int64_t i = 0; i < kMatrices; ++i) {
    model.push_back({.name = "w" + std::to_string(i),
                     .shape = Shape({kWidth, kWidth}),
                     .weight_dtype = DType::kBF16});
  }
  return model;
}

// The most memory that this process has had so far.
uint64_t PeakBytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    uint64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib << 10;
  }
  return 0;
}

std::unique_ptr<StateStore> MakeStore(std::shared_ptr<Communicator> ranks,
                                      int32_t stage,
                                      const std::string& directory) {
  auto partitioning = Partitioning::Build(
      Model(), {.stage = stage, .num_ranks = ranks->size()});
  StoreOptions options{.communicator = std::move(ranks)};
  if (!directory.empty()) {
    options.tiers.rest.tier = MakeNvmeTier({.directory = directory});
  }
  return std::make_unique<StateStore>(Model(), std::move(partitioning),
                                      std::move(options));
}

ExecutorOptions Options() {
  return {.groups = {{}},
          .max_gather_bytes = 4 * kWidth * kWidth * sizeof(float),
          .max_swap_bytes = uint64_t{12} << 20};
}

void Steps(StateStore& store, OffloadExecutor& executor, uint64_t first,
           uint64_t last) {
  for (uint64_t step = first; step < last; ++step) {
    testutil::AccumulateAll(store, executor, step + 1);
    executor.Step();
  }
}

// Of every tensor, one at a time.
uint64_t DigestOf(StateStore& store) {
  native::Hasher64 hasher;
  for (const ParameterSpec& parameter : store.parameters()) {
    for (const std::string_view kind : {kMaster, kMomentum, kWeight}) {
      hasher.Update(store.Gather(parameter.name, StateKind(kind)).data);
    }
  }
  return hasher.Digest();
}

// `first`: of the process before it had a store.
void ExpectAQuarter(uint64_t first, int32_t num_ranks) {
  const uint64_t used = PeakBytes() - first;
  EXPECT_LE(used, kStateBytes / 4 / static_cast<uint64_t>(num_ranks))
      << "of a state of " << kStateBytes << " on " << num_ranks << " ranks";
}

TEST(LargerThanMemoryTest, StepsSavesAndResumesBitForBit) {
  const testutil::Scratch scratch;
  const std::string nvme = scratch.path().string();
  const std::string root = (scratch / "run").string();
  testutil::RunRanks(
      1,
      [&](int32_t) {
        const auto store = MakeStore(MakeSingleCommunicator(), 2, {});
        OffloadExecutor executor(*store, Options());
        Steps(*store, executor, 0, 4);
        std::ofstream(scratch / "expected") << DigestOf(*store);
      },
      kPatient);
  testutil::RunKilledRanks(
      2,
      [&](const auto& ranks) {
        const uint64_t first = PeakBytes();
        const auto store = MakeStore(ranks, 2, nvme);
        OffloadExecutor executor(*store, Options());
        Saver saver(*store, root);
        Steps(*store, executor, 0, 2);
        const SaveHandle save = saver.Save("two", {.asynchronous = true});
        Steps(*store, executor, 2, 3);
        save.Wait();
        ExpectAQuarter(first, 2);
        ranks->Barrier();
        if (!testing::Test::HasFailure()) raise(SIGKILL);
      },
      kPatient);
  testutil::RunRanks(
      1,
      [&](int32_t) {
        const uint64_t first = PeakBytes();
        const auto store = MakeStore(MakeSingleCommunicator(), 3, nvme);
        OffloadExecutor executor(*store, Options());
        Resume(*store, root);
        Steps(*store, executor, 2, 4);
        uint64_t expected = 0;
        std::ifstream(scratch / "expected") >> expected;
        EXPECT_EQ(DigestOf(*store), expected);
        ExpectAQuarter(first, 1);
      },
      kPatient);
}

}  // namespace
}  // namespace muonstore
