// The crash matrix of a save by two ranks: whatever fails, and whenever, a
// reader finds the old checkpoint or the new one, and the store can be saved
// again.
#include <array>
#include <memory>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/log.h"
#include "muonstore/open.h"
#include "muonstore/save.h"
#include "tests/checkpoint/live_run.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/run_ranks.h"
#include "tests/testutil/simulated_file_system.h"

namespace muonstore {
namespace {

using testing::AnyOf;
using testutil::Fault;
using testutil::LiveRun;
using testutil::SimulatedFileSystem;
using FilesPtr = std::shared_ptr<SimulatedFileSystem>;

constexpr const char* kRoot = "/sim/root";
constexpr int32_t kNumRanks = 2;
// Of each loss of power: what was not synced survives in another way each time.
constexpr uint64_t kNumRestarts = 8;

// Step, names and values of a tag; "none" where there is no tag.
std::string StateOf(const FilesPtr& fs, const std::string& tag) {
  const std::string folder = std::string(kRoot) + "/" + tag;
  if (!fs->Stat(folder) || fs->List(folder).empty()) return "none";
  if (!fs->Stat(folder + "/manifest.json")) return "none";
  for (const Finding& finding : VerifyCheckpoint(fs, folder).findings) {
    if (finding.severity == Finding::Severity::kFault) {
      return finding.ToString();
    }
  }
  const auto checkpoint = OpenCheckpoint(fs, folder);
  std::string text = "step " + std::to_string(*checkpoint->info().step) + "\n";
  for (size_t i = 0; i < checkpoint->tensors().size(); ++i) {
    const CheckpointTensor& tensor = checkpoint->tensors()[i];
    const int64_t count = tensor.shape.num_elements();
    std::string bytes(static_cast<size_t>(count * SizeBytes(tensor.dtype)),
                      '\0');
    ReadTensor(*checkpoint, i, {0, count},
               std::as_writable_bytes(std::span(bytes)));
    text += tensor.key.ToString() + " " +
            std::to_string(std::hash<std::string>()(bytes)) + "\n";
  }
  return text;
}

struct Parameters {
  Fault fault;
  const char* fault_name;
  bool over;  // Over the tag that is there, or beside it.

  friend void PrintTo(const Parameters& one, std::ostream* out) {
    *out << one.fault_name << (one.over ? "_over" : "_beside");
  }
};

// What both ranks share.
struct Machine {
  FilesPtr start;  // With the old tag, which `latest` names.
  FilesPtr fs;
  std::string old_state;
  std::string new_state;
  int64_t num_operations = 0;
  int64_t num_failed = 0;
};

// One rank. Rank 0 judges while the other waits.
class CrashingRank {
 public:
  CrashingRank(std::shared_ptr<Communicator> ranks, Machine& machine,
               const Parameters& parameters)
      : ranks_(ranks),
        machine_(machine),
        parameters_(parameters),
        run_(ranks, {}) {}

  void Run() {
    Prepare();
    for (int64_t n = 0; n <= machine_.num_operations; ++n) {
      Alone([&] {
        machine_.fs = machine_.start->Copy();
        machine_.fs->FailAfter(n, parameters_.fault);
      });
      const bool finished = TrySave(machine_.fs);
      // Beyond the last operation the power goes right after the end.
      if (n == machine_.num_operations && IsLossOfPower()) {
        machine_.fs->LosePower();
      }
      const bool agree = AllAgree(finished);
      EXPECT_TRUE(agree) << "operation " << n;
      EXPECT_FALSE(run_.store().poisoned());
      Judge(n, finished);
      if (testing::Test::HasFailure()) break;
    }
    run_.Close();
  }

 private:
  bool IsLossOfPower() const {
    return parameters_.fault == Fault::kPowerLoss ||
           parameters_.fault == Fault::kTornWrite;
  }

  std::string tag() const { return parameters_.over ? "old" : "new"; }

  void Prepare() {
    Alone([&] {
      machine_.fs =
          std::make_shared<SimulatedFileSystem>(PosixFileSystem(), "/sim");
    });
    run_.Steps(0, 1);
    Saver(run_.store(), kRoot, machine_.fs).Save("old");
    run_.Steps(1, 2);
    Alone([&] {
      machine_.start = machine_.fs;
      machine_.old_state = StateOf(machine_.start, "old");
      machine_.fs = machine_.start->Copy();
    });
    EXPECT_TRUE(TrySave(machine_.fs));
    Alone([&] {
      // Copy() starts to count anew.
      machine_.num_operations = machine_.fs->num_operations();
      machine_.new_state = StateOf(machine_.fs, tag());
      EXPECT_NE(machine_.old_state, machine_.new_state);
      EXPECT_GT(machine_.num_operations, 40);
    });
  }

  template <typename Function>
  void Alone(const Function& function) {
    ranks_->Barrier();
    if (ranks_->rank() == 0) function();
    ranks_->Barrier();
  }

  bool TrySave(const FilesPtr& fs) {
    Saver saver(run_.store(), kRoot, fs);
    const SaveHandle handle =
        saver.Save(tag(), {.asynchronous = true, .overwrite = true});
    try {
      handle.Wait();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  bool AllAgree(bool finished) {
    std::array<int64_t, 2> votes = {finished ? 1 : 0, finished ? 0 : 1};
    ranks_->AllReduce(votes, ReduceOp::kMin);
    return votes[0] == 1 || votes[1] == 1;
  }

  void Judge(int64_t n, bool finished) {
    Alone([&] { machine_.num_failed += finished ? 0 : 1; });
    const bool lost_power = !machine_.fs->has_power();
    const FilesPtr crashed = machine_.fs;
    for (uint64_t seed = 0; seed < (lost_power ? kNumRestarts : 1); ++seed) {
      SCOPED_TRACE("operation " + std::to_string(n) + ", restart " +
                   std::to_string(seed));
      Alone([&] {
        machine_.fs = crashed->Copy();
        if (lost_power) {
          machine_.fs->Restart(static_cast<uint64_t>(n) * kNumRestarts + seed);
        }
        ExpectOldOrNew(finished);
      });
      EXPECT_TRUE(TrySave(machine_.fs));
      Alone([&] { ExpectNewAndNothingElse(); });
    }
  }

  void ExpectOldOrNew(bool finished) const {
    const std::string state = StateOf(machine_.fs, tag());
    const std::string latest =
        ReadSmallFile(*machine_.fs, std::string(kRoot) + "/latest", 100);
    if (finished) {
      EXPECT_EQ(state, machine_.new_state);
      EXPECT_EQ(latest, tag());
      return;
    }
    EXPECT_THAT(state, AnyOf(parameters_.over ? machine_.old_state : "none",
                             machine_.new_state));
    EXPECT_THAT(latest, AnyOf("old", tag()));
    // What it names is there.
    EXPECT_THAT(StateOf(machine_.fs, latest),
                AnyOf(machine_.old_state, machine_.new_state));
    if (!parameters_.over) {
      EXPECT_EQ(StateOf(machine_.fs, "old"), machine_.old_state);
    }
  }

  void ExpectNewAndNothingElse() const {
    EXPECT_EQ(StateOf(machine_.fs, tag()), machine_.new_state);
    // Of each tag: its folder, two ranks' files, checksums, view and manifest;
    // the root and `latest`.
    const size_t num_tags = parameters_.over ? 1 : 2;
    EXPECT_EQ(machine_.fs->Everything().size(), 2 + num_tags * 6);
  }

  std::shared_ptr<Communicator> ranks_;
  Machine& machine_;
  const Parameters& parameters_;
  LiveRun run_;
};

class LiveCrashTest : public testing::TestWithParam<Parameters> {};

TEST_P(LiveCrashTest, LeavesTheOldOrTheNew) {
  Machine machine;
  SetLogLevel(LogLevel::kOff);
  const std::string rendezvous = testutil::UniqueRendezvous();
  testutil::RunRankThreads(kNumRanks, [&](int32_t rank) {
    CrashingRank(
        ConnectSharedMemory(
            {.rank = rank, .size = kNumRanks, .rendezvous = rendezvous}),
        machine, GetParam())
        .Run();
  });
  SetLogLevel(LogLevel::kWarning);
  EXPECT_GT(machine.num_failed, machine.num_operations / 2);
}

std::vector<Parameters> AllFaults() {
  std::vector<Parameters> all;
  for (const bool over : {true, false}) {
    all.push_back({Fault::kError, "error", over});
    all.push_back({Fault::kNoSpace, "no_space", over});
    all.push_back({Fault::kShortWrite, "short_write", over});
    all.push_back({Fault::kTornWrite, "torn_write", over});
    all.push_back({Fault::kPowerLoss, "power_loss", over});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Faults, LiveCrashTest, testing::ValuesIn(AllFaults()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace muonstore
