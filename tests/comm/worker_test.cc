#include "src/comm/worker.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/error.h"

namespace muonstore::comm {
namespace {

TEST(Worker, DoesTasksInOrder) {
  Worker worker;
  std::vector<int> order;
  std::vector<PendingPtr> pending;
  for (int i = 0; i < 100; ++i) {
    pending.push_back(worker.Post([&order, i] { order.push_back(i); }));
  }
  pending.back()->Wait();
  ASSERT_EQ(order.size(), 100U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_TRUE(pending.front()->done());
}

TEST(Worker, IsAnotherThreadThatTakesNoSignals) {
  Worker worker;
  const auto caller = std::this_thread::get_id();
  worker
      .Post([caller] {
        EXPECT_NE(std::this_thread::get_id(), caller);
        sigset_t mask;
        ::pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        EXPECT_EQ(::sigismember(&mask, SIGINT), 1);
      })
      ->Wait();
  sigset_t mine;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(::sigismember(&mine, SIGINT), 0);
}

TEST(Worker, AHandleIsNotDoneBeforeItsTask) {
  Worker worker;
  std::promise<void> go;
  const auto pending =
      worker.Post([gate = go.get_future().share()] { gate.wait(); });
  EXPECT_FALSE(pending->done());
  go.set_value();
  pending->Wait();
  EXPECT_TRUE(pending->done());
}

TEST(Worker, AnErrorIsThrownAtEachWaitAndLaterTasksRun) {
  Worker worker;
  const auto failed = worker.Post(
      [] { throw Error(ErrorCode::kDataLoss, "bad", {.file = "f"}); });
  const auto fine = worker.Post([] {});
  for (int i = 0; i < 2; ++i) {
    try {
      failed->Wait();
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_EQ(error.place().file, "f");
    }
  }
  EXPECT_NO_THROW(fine->Wait());
}

TEST(Worker, OtherExceptionsBecomeErrors) {
  Worker worker;
  const auto failed = worker.Post([] { throw std::runtime_error("no luck"); });
  try {
    failed->Wait();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_STREQ(error.what(), "no luck");
  }
}

TEST(Worker, TheDestructorDoesWhatIsQueued) {
  int done = 0;
  PendingPtr last;
  {
    Worker worker;
    for (int i = 0; i < 10; ++i) {
      last = worker.Post([&done] { ++done; });
    }
  }
  EXPECT_EQ(done, 10);
  // A handle may outlive its worker.
  EXPECT_NO_THROW(last->Wait());
}

TEST(Worker, AForkedProcessIsRefusedAndEndsInPeace) {
  auto worker = std::make_unique<Worker>();
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      (void)worker->Post([] {});
    } catch (const Error& error) {
      worker.reset();
      ::_exit(error.code() == ErrorCode::kInvalidArgument ? 7 : 1);
    }
    ::_exit(2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace muonstore::comm
