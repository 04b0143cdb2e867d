// The real tool, killed at random moments of converting onto an existing tag.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/fixtures.h"
#include "tests/testutil/process.h"
#include "tests/testutil/scratch.h"

namespace muonstore::testutil {
namespace {

using testing::AnyOf;
using testing::ElementsAre;
using Clock = std::chrono::steady_clock;

constexpr int kNumKills = 100;

class KillTest : public testing::TestWithParam<std::string> {
 protected:
  std::vector<std::string> Command(const std::string& step) const {
    return {MUONSTORE_CKPT_CONVERT,
            source_.string(),
            root(),
            "--to",
            GetParam(),
            "--tag",
            step,
            "--out-tag",
            "tag",
            "--overwrite",
            "--jobs",
            "2"};
  }
  std::string root() const { return (scratch_ / "root").string(); }

  void RunToTheEnd(const std::string& step) const {
    const ProcessResult result = RunProcess(Command(step));
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  // Starts the tool and sends a signal `after` so long; the exit status as of
  // waitpid.
  int RunAndSignal(std::chrono::microseconds after, int signal,
                   const std::string& option = "") const {
    std::vector<std::string> command = Command("step8");
    if (!option.empty()) command.push_back(option);
    std::vector<char*> argv;
    for (const std::string& word : command) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid == 0) {
      const int ignored = ::dup2(::open("/dev/null", O_WRONLY), 1);
      (void)ignored;
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    std::this_thread::sleep_for(after);  // The moment is the test's input.
    ::kill(pid, signal);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }

  // The tag as a reader sees it: which step, and whole.
  std::string State() const {
    const auto folder = scratch_ / "root/tag";
    if (GetParam() == "safetensors") {
      return ReadBytes(folder / "model.safetensors");
    }
    const ProcessResult whole =
        RunProcess({MUONSTORE_CKPT_INSPECT, "verify", root(), "--tag", "tag"});
    EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
    const ProcessResult tensors =
        RunProcess({MUONSTORE_CKPT_INSPECT, "dump", root(), "--tag", "tag",
                    "--param", "blocks.0.fc1.weight", "--state", "momentum"});
    EXPECT_EQ(tensors.exit_code, 0) << tensors.err;
    return tensors.out;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry :
         std::filesystem::directory_iterator(scratch_ / "root")) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Scratch scratch_;
  std::filesystem::path source_ =
      FindDeepSpeedCase("s2-ws2-bf16-none-twotags").folder / "ckpt";
};

TEST_P(KillTest, LeavesTheOldTagOrTheNewOne) {
  RunToTheEnd("step8");
  const std::string new_state = State();
  const auto start = Clock::now();
  RunToTheEnd("step5");
  auto longest = std::chrono::duration_cast<std::chrono::microseconds>(
      Clock::now() - start);
  const std::string old_state = State();
  ASSERT_NE(old_state, new_state);
  std::mt19937_64 random(1);
  for (int num_killed = 0, i = 0; num_killed < kNumKills; ++i) {
    const auto after = std::chrono::microseconds(
        random() % static_cast<uint64_t>(longest.count()));
    const bool finished = WIFEXITED(RunAndSignal(after, SIGKILL));
    num_killed += finished ? 0 : 1;
    // The machine may be faster now: sooner, until kills come in time.
    longest = std::max(finished ? longest * 7 / 8 : longest * 17 / 16,
                       std::chrono::microseconds(1));
    const std::string state = State();
    if (finished) {
      ASSERT_EQ(state, new_state) << "run " << i;
    } else {
      ASSERT_THAT(state, AnyOf(old_state, new_state)) << "run " << i;
    }
    if (state == new_state) RunToTheEnd("step5");
  }
  RunToTheEnd("step8");
  EXPECT_EQ(State(), new_state);
  EXPECT_THAT(Names(),
              AnyOf(ElementsAre("latest", "tag"), ElementsAre("tag"),
                    ElementsAre("latest", "tag", "tag.fingerprint.json")));
}

TEST_P(KillTest, CarriedFilesAreWholeOrAbsent) {
  source_ = scratch_.Copy(source_, "source");
  std::map<std::string, std::string> beside;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "part-" + std::to_string(i);
    beside[name] = std::string(size_t{1} << 20, static_cast<char>('a' + i));
    WriteBytes(source_ / name, beside[name]);
  }
  const auto start = Clock::now();
  RunAndSignal(std::chrono::microseconds(0), 0, "--carry-files");
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(
      Clock::now() - start);
  std::mt19937_64 random(3);
  for (int i = 0; i < kNumKills / 4; ++i) {
    std::filesystem::remove_all(scratch_ / "root");
    RunAndSignal(std::chrono::microseconds(
                     random() % static_cast<uint64_t>(whole.count())),
                 SIGKILL, "--carry-files");
    for (const auto& [name, bytes] : beside) {
      const auto path = scratch_ / "root" / name;
      if (std::filesystem::exists(path)) {
        ASSERT_TRUE(ReadBytes(path) == bytes) << name << ", run " << i;
      }
    }
  }
  EXPECT_EQ(RunAndSignal(std::chrono::microseconds(0), 0, "--carry-files"), 0);
  for (const auto& [name, bytes] : beside) {
    EXPECT_TRUE(ReadBytes(scratch_ / "root" / name) == bytes) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "root" /
                                       "..carried.muonstore-partial"));
}

TEST_P(KillTest, AnInterruptLeavesNothing) {
  const auto start = Clock::now();
  RunAndSignal(std::chrono::microseconds(0), 0, "--verify");
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(
      Clock::now() - start);
  std::mt19937_64 random(2);
  int num_interrupted = 0;
  for (int i = 0; i < kNumKills / 2; ++i) {
    std::filesystem::remove_all(scratch_ / "root");
    const auto after = std::chrono::microseconds(
        random() % static_cast<uint64_t>(whole.count()));
    const int status = RunAndSignal(after, SIGINT, "--verify");
    // Before the tool has set itself up it may die of the signal itself.
    const bool interrupted = WIFSIGNALED(status) || WEXITSTATUS(status) == 130;
    num_interrupted += interrupted ? 1 : 0;
    ASSERT_TRUE(interrupted || WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(std::filesystem::exists(scratch_ / "root"), !interrupted)
        << "run " << i;
  }
  EXPECT_GT(num_interrupted, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, KillTest,
                         testing::Values("deepspeed", "native", "safetensors"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace muonstore::testutil
