#include "tests/checkpoint/live_run.h"

#include <csignal>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "src/base/str.h"

namespace muonstore::testutil {
namespace {

std::vector<std::byte> Bytes(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string ToText(const StoreRecord& record) {
  std::string text =
      StrCat(record.steps, " steps, ", record.skipped_steps,
             " skipped, clipping ", ClippingModeName(record.clipping),
             ", convention ", static_cast<int>(record.convention), ", groups");
  for (const int64_t steps : record.group_steps) text += StrCat(" ", steps);
  return text;
}

}  // namespace

LiveRun::LiveRun(std::shared_ptr<Communicator> ranks, const StepSetup& setup)
    : store_(MakeStepStore(std::move(ranks), setup)) {
  ExecutorOptions options = StepOptionsOf(*store_);
  options.swap_mode = setup.swap_mode;
  executor_ = std::make_unique<OffloadExecutor>(*store_, options);
}

LiveRun::~LiveRun() = default;

std::vector<GroupHyperParameters> LiveRun::groups() {
  return StepOptionsOf(*store_).groups;
}

void LiveRun::Steps(int64_t first, int64_t last) {
  for (int64_t step = first; step < last; ++step) {
    const bool overflows = step > 0 && step % 4 == 0;
    AccumulateAll(*store_, *executor_, static_cast<uint64_t>(step) + 1,
                  overflows ? std::numeric_limits<float>::infinity() : 1);
    executor_->Step();
  }
}

StateBytes LiveRun::State() {
  StateBytes state = AllState(*store_);
  state["record"] = Bytes(ToText(store_->record()));
  return state;
}

void LiveRun::Close() {
  executor_->Close();
  executor_.reset();
  store_->Close();
}

StateBytes StateAfter(int64_t num_steps, const StepSetup& setup) {
  LiveRun run(MakeSingleCommunicator(), setup);
  run.Steps(0, num_steps);
  return run.State();
}

void RunKilledRanks(
    int32_t num_ranks,
    const std::function<void(std::shared_ptr<Communicator>)>& rank_function,
    const RunRanksOptions& options) {
  const std::string rendezvous = UniqueRendezvous();
  const std::vector<RankOutcome> outcomes = TryRunRanks(
      num_ranks,
      [&](int32_t rank) {
        rank_function(ConnectSharedMemory(
            {.rank = rank, .size = num_ranks, .rendezvous = rendezvous}));
      },
      options);
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.signal, SIGKILL) << outcome.failures;
    EXPECT_EQ(outcome.failures, "");
    EXPECT_FALSE(outcome.timed_out);
  }
}

}  // namespace muonstore::testutil
