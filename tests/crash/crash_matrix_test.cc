// The crash matrix: whatever fails, and whenever, a reader finds the old tag or
// the new one, and the next conversion cleans up.
#include <memory>
#include <ostream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "src/os/output_root.h"
#include "tests/crash/interrupted_conversion.h"

namespace muonstore {
namespace {

using testing::AnyOf;
using testutil::Fault;
using testutil::InterruptedConversion;
using testutil::SimulatedFileSystem;

// Restarts that are tried after each loss of power: what was not synced
// survives in another way each time.
constexpr uint64_t kNumRestarts = 2;

struct Parameters {
  TargetFormat format;
  bool has_exchange;

  std::string name() const {
    return std::string(TargetFormatName(format)) +
           (has_exchange ? "" : "_without_exchange");
  }
  friend void PrintTo(const Parameters& one, std::ostream* out) {
    *out << one.name();
  }
};

class CrashMatrixTest : public testing::TestWithParam<Parameters> {
 protected:
  CrashMatrixTest() : conversion_(GetParam().format, GetParam().has_exchange) {}

  int64_t NumOperations() const {
    const auto fs = conversion_.Start();
    const int64_t before = fs->num_operations();
    conversion_.Convert(fs);
    return fs->num_operations() - before;
  }

  // True where the conversion got through.
  bool TryConvert(const std::shared_ptr<SimulatedFileSystem>& fs) const {
    try {
      conversion_.Convert(fs);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  // What a reader finds after the next writer has come and gone: on a file
  // system that cannot exchange, the tag may be aside until then.
  std::string SettledState(
      const std::shared_ptr<SimulatedFileSystem>& fs) const {
    if (!GetParam().has_exchange) {
      const os::OutputRoot settles(fs, "/sim/root");
    }
    return conversion_.StateOf(fs);
  }

  void ExpectOldOrNew(const std::shared_ptr<SimulatedFileSystem>& fs,
                      bool finished) const {
    const std::string state = SettledState(fs);
    if (finished) {
      EXPECT_EQ(state, conversion_.new_state());
    } else {
      EXPECT_THAT(state,
                  AnyOf(conversion_.old_state(), conversion_.new_state()));
    }
    EXPECT_EQ(ReadSmallFile(*fs, "/sim/root/latest", 100), "tag");
  }

  void ExpectNextCleansUp(
      const std::shared_ptr<SimulatedFileSystem>& fs) const {
    ASSERT_TRUE(TryConvert(fs));
    EXPECT_EQ(conversion_.StateOf(fs), conversion_.new_state());
    EXPECT_EQ(conversion_.Leftovers(*fs), "");
  }

  void RunWithPower(Fault fault) const {
    const int64_t count = NumOperations();
    int num_failed = 0;
    for (int64_t n = 0; n < count; ++n) {
      SCOPED_TRACE("operation " + std::to_string(n));
      const auto fs = conversion_.Start();
      fs->FailAfter(n, fault);
      const bool finished = TryConvert(fs);
      num_failed += finished ? 0 : 1;
      ExpectOldOrNew(fs, finished);
      ExpectNextCleansUp(fs);
      if (HasFailure()) return;
    }
    EXPECT_GT(num_failed, count / 2);
  }

  void RunWithoutPower(Fault fault) const {
    const int64_t count = NumOperations();
    for (int64_t n = 0; n <= count; ++n) {
      const auto fs = conversion_.Start();
      fs->FailAfter(n, fault);
      const bool finished = TryConvert(fs);
      if (n == count) fs->LosePower();  // Right after the end.
      for (uint64_t seed = 0; seed < kNumRestarts && !fs->has_power(); ++seed) {
        SCOPED_TRACE("operation " + std::to_string(n) + ", restart " +
                     std::to_string(seed));
        const auto machine = fs->Copy();
        machine->Restart(static_cast<uint64_t>(n) * kNumRestarts + seed);
        ExpectOldOrNew(machine, finished);
        ExpectNextCleansUp(machine);
        if (HasFailure()) return;
      }
    }
  }

  InterruptedConversion conversion_;
};

TEST_P(CrashMatrixTest, OldAndNewDiffer) {
  EXPECT_NE(conversion_.old_state(), conversion_.new_state());
  EXPECT_GT(NumOperations(), 20);
}

TEST_P(CrashMatrixTest, AnErrorOfAnyOperation) { RunWithPower(Fault::kError); }
TEST_P(CrashMatrixTest, NoSpaceAtAnyOperation) {
  RunWithPower(Fault::kNoSpace);
}
TEST_P(CrashMatrixTest, AShortWriteAnywhere) {
  RunWithPower(Fault::kShortWrite);
}
TEST_P(CrashMatrixTest, ALossOfPowerAnywhere) {
  RunWithoutPower(Fault::kPowerLoss);
}
TEST_P(CrashMatrixTest, ATornWriteAnywhere) {
  RunWithoutPower(Fault::kTornWrite);
}

INSTANTIATE_TEST_SUITE_P(
    Formats, CrashMatrixTest,
    testing::Values(Parameters{TargetFormat::kNative, true},
                    Parameters{TargetFormat::kDeepSpeed, true},
                    Parameters{TargetFormat::kDeepSpeed, false},
                    Parameters{TargetFormat::kSafetensors, true},
                    Parameters{TargetFormat::kSafetensors, false}),
    [](const auto& one) { return one.param.name(); });

}  // namespace
}  // namespace muonstore
