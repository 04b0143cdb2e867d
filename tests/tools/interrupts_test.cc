#include "tools/common/interrupts.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

#include "tests/testutil/no_threads.h"

namespace muonstore::tools {
namespace {

// A death test runs in a process of its own.
using InterruptsDeathTest = testing::Test;

[[noreturn]] void KillSelfAndWait(int signal) {
  ::kill(::getpid(), signal);
  for (;;) ::pause();
}

TEST(InterruptsDeathTest, EndsTheProcessAtOnce) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const Interrupts interrupts;
        KillSelfAndWait(SIGINT);
      },
      testing::ExitedWithCode(130), "");
  EXPECT_EXIT(
      {
        const Interrupts interrupts;
        KillSelfAndWait(SIGTERM);
      },
      testing::ExitedWithCode(143), "");
}

TEST(InterruptsDeathTest, ADeferralLeavesTheEndToTheWork) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        Interrupts interrupts;
        const Interrupts::Deferral deferral(interrupts);
        ::kill(::getpid(), SIGINT);
        try {
          for (;;) interrupts.ThrowIfInterrupted();
        } catch (const Interrupted& interrupted) {
          ::_exit(interrupted.exit_code() + 1);
        }
      },
      testing::ExitedWithCode(131), "");
}

TEST(InterruptsDeathTest, ASignalAfterTheWorkIsNoFailureASecondOneEnds) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto finish = [](int num_signals) {
    Interrupts interrupts;
    {
      const Interrupts::Deferral deferral(interrupts);
      interrupts.SetFinished();
    }
    for (int i = 0; i < num_signals; ++i) {
      ::kill(::getpid(), SIGINT);
      // Signals of one kind that wait are one: the first has to be noted.
      while (!interrupts.was_signalled()) std::this_thread::yield();
    }
    if (num_signals > 1) ::pause();
    ::_exit(0);
  };
  EXPECT_EXIT(finish(1), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(finish(2), testing::ExitedWithCode(130), "");
}

TEST(InterruptsDeathTest, SignalsIgnoredAtTheStartStayIgnored) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_IGN);
        const Interrupts interrupts;
        ::kill(::getpid(), SIGINT);
        KillSelfAndWait(SIGTERM);
      },
      testing::ExitedWithCode(143), "");
}

TEST(InterruptsDeathTest, WithoutAThreadTheSignalsEndTheProcess) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs the memory that the test takes away";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        testutil::RefuseThreads();
        Interrupts interrupts;
        { const Interrupts::Deferral deferral(interrupts); }
        KillSelfAndWait(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(InterruptsDeathTest, WithoutAThreadADeferralHoldsTheSignalsBack) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer needs the memory that the test takes away";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        testutil::RefuseThreads();
        Interrupts interrupts;
        const Interrupts::Deferral deferral(interrupts);
        interrupts.ThrowIfInterrupted();
        ::kill(::getpid(), SIGINT);
        try {
          interrupts.ThrowIfInterrupted();
        } catch (const Interrupted& interrupted) {
          ::_exit(interrupted.exit_code() + 1);
        }
      },
      testing::ExitedWithCode(131), "");
}

TEST(Interrupts, EndsWithoutASignal) {
  Interrupts interrupts;
  EXPECT_NO_THROW(interrupts.ThrowIfInterrupted());
}

}  // namespace
}  // namespace muonstore::tools
