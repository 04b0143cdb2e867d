// Two ranks that step and save, killed at random moments, resumed from what is
// there, over and over: what they find is always a step of the one run.
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/open.h"
#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/run_ranks.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testutil::LiveRun;
using testutil::RankOutcome;

constexpr int32_t kNumRanks = 2;
constexpr int64_t kNumSaves = 200;
// Of the kills, at least so many have landed in a save when the test ends.
constexpr int64_t kNumKillsInSaves = 8;
// Runs start anew now and then, so that comparing them stays cheap.
constexpr int64_t kMaxSteps = 40;
// A run that ended saves no more.
constexpr std::chrono::seconds kLongestRun(1);

// What the ranks tell the test; memory that all share.
struct Shared {
  std::atomic<int64_t> saves_started{0};
  std::atomic<bool> started{false};
  std::atomic<bool> is_saving{false};  // Rank 0.
};

class SharedMemory {
 public:
  SharedMemory()
      : memory_(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    shared_ = ::new (memory_) Shared();
  }
  ~SharedMemory() { ::munmap(memory_, sizeof(Shared)); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  Shared& operator*() const { return *shared_; }
  Shared* operator->() const { return shared_; }

 private:
  void* memory_;
  Shared* shared_;
};

class LiveKillTest : public testing::Test {
 protected:
  std::string root() const { return (scratch_ / "root").string(); }

  // Steps and saves until it is killed, or for kMaxSteps.
  void BeRank(int32_t rank, const std::string& rendezvous) {
    const std::shared_ptr<Communicator> ranks = ConnectSharedMemory(
        {.rank = rank, .size = kNumRanks, .rendezvous = rendezvous});
    LiveRun run(ranks, {});
    int64_t step = 0;
    if (std::filesystem::exists(scratch_ / "root/latest")) {
      const ResumeReport report = Resume(run.store(), root());
      EXPECT_TRUE(report.passed_over.empty());
      step = report.step.value();
      EXPECT_TRUE(run.State() == testutil::StateAfter(step)) << step;
    }
    Saver saver(run.store(), root());
    for (; step < kMaxSteps; ++step) {
      run.Steps(step, step + 1);
      if (rank == 0) {
        ++shared_->saves_started;
        shared_->is_saving = true;
        shared_->started = true;
      }
      const SaveHandle handle =
          saver.Save(step % 3 == 0 ? "a" : "b",
                     {.asynchronous = step % 2 == 0, .overwrite = true});
      handle.Wait();
      if (rank == 0) shared_->is_saving = false;
    }
    saver.Close();
    run.Close();
    shared_->started = true;
  }

  // Runs, waits, where asked for the next save, too, and kills; true where the
  // kill landed in a save.
  bool RunAndKill(std::chrono::microseconds after, bool in_save) {
    bool was_saving = false;
    shared_->started = false;
    shared_->is_saving = false;
    const std::string rendezvous = testutil::UniqueRendezvous();
    const std::vector<RankOutcome> outcomes = testutil::TryRunRanks(
        kNumRanks, [&](int32_t rank) { BeRank(rank, rendezvous); },
        {.on_started = [&](const std::vector<int>& pids) {
          while (!shared_->started) std::this_thread::yield();
          std::this_thread::sleep_for(after);  // The moment is the input.
          const auto deadline = std::chrono::steady_clock::now() + kLongestRun;
          while (in_save && !shared_->is_saving &&
                 std::chrono::steady_clock::now() < deadline) {
            std::this_thread::yield();
          }
          for (const int pid : pids) ::kill(pid, SIGSTOP);
          was_saving = shared_->is_saving;
          for (const int pid : pids) ::kill(pid, SIGKILL);
        }});
    bool was_killed = false;
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.failures, "");
      was_killed = was_killed || outcome.signal == SIGKILL;
    }
    return was_killed && was_saving;
  }

  void ExpectWholeTags() const {
    if (!std::filesystem::exists(scratch_ / "root/latest")) return;
    const RootListing listing = ListTags(PosixFileSystem(), root());
    for (const Finding& finding : listing.findings) {
      // The first save of a tag died; its folder is no tag.
      EXPECT_EQ(finding.code, "never_committed") << finding.message;
    }
    for (const TagListing& tag : listing.tags) {
      EXPECT_TRUE(
          VerifyCheckpoint(PosixFileSystem(), root(), {.tag = tag.tag}).whole())
          << tag.tag;
    }
  }

  testutil::Scratch scratch_;
  SharedMemory shared_;
};

TEST_F(LiveKillTest, WhatIsResumedIsAlwaysAStepOfTheRun) {
  std::mt19937_64 random(1);
  int64_t num_kills = 0;
  int64_t num_in_saves = 0;
  while (shared_->saves_started < kNumSaves ||
         num_in_saves < kNumKillsInSaves) {
    ++num_kills;
    const bool in_save = num_kills % 2 == 0;
    // Soon, where it is to come in a save: before the run ends.
    const std::chrono::microseconds after(random() %
                                          (in_save ? 50'000 : 250'000));
    num_in_saves += RunAndKill(after, in_save) ? 1 : 0;
    ExpectWholeTags();
    if (num_kills % 8 == 0) std::filesystem::remove_all(scratch_ / "root");
  }
  RecordProperty("saves", static_cast<int>(shared_->saves_started));
  RecordProperty("kills", static_cast<int>(num_kills));
  RecordProperty("kills_in_saves", static_cast<int>(num_in_saves));
  std::printf("%lld saves, %lld kills, %lld of them in a save\n",
              static_cast<long long>(shared_->saves_started),
              static_cast<long long>(num_kills),
              static_cast<long long>(num_in_saves));
}

}  // namespace
}  // namespace muonstore
