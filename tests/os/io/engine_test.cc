// The engine's own work, over a ring that does what the test says.
#include "src/os/io/engine.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "src/base/aligned_bytes.h"
#include "tests/os/io/scripted_ring.h"

namespace muonstore::os {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kDirectFd = 1001;
constexpr int kFd = 1002;
constexpr size_t kPieceBytes = 8192;

// Numbers that no file is open under: closing them fails, and harmlessly.
OpenFilePtr FakeFile(bool has_direct = true) {
  return std::make_shared<OpenFile>(
      OpenFile{.path = "file",
               .fd = FileDescriptor(kFd),
               .direct_fd = FileDescriptor(has_direct ? kDirectFd : -1)});
}

class EngineTest : public testing::Test {
 protected:
  std::shared_ptr<Engine> Make(int queue_depth = 4, int num_buffers = 4) {
    return std::make_shared<Engine>(
        MakeScriptedRing(script_, num_buffers),
        IoOptions{.queue_depth = queue_depth, .piece_bytes = kPieceBytes});
  }

  PendingPtr Read(Engine& engine, uint64_t offset, size_t size) {
    return engine.Start(file_, {.offset_bytes = offset,
                                .data = memory_.data() + offset % 4096,
                                .size_bytes = size});
  }

  Error ErrorOf(const PendingPtr& pending) {
    try {
      pending->Wait();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return {ErrorCode::kInternal, ""};
  }

  // Offset and size of each request.
  std::vector<std::pair<uint64_t, uint32_t>> Ranges() const {
    std::vector<std::pair<uint64_t, uint32_t>> ranges;
    for (const RingEntry& entry : script_->requests()) {
      ranges.emplace_back(entry.offset_bytes, entry.size_bytes);
    }
    return ranges;
  }

  std::shared_ptr<RingScript> script_ = std::make_shared<RingScript>();
  OpenFilePtr file_ = FakeFile();
  AlignedBytes memory_{size_t{1} << 20};
};

TEST_F(EngineTest, CutsAtBlocksAndPieces) {
  const auto engine = Make(16);
  Read(*engine, 4000, 96 + 3 * 8192 + 5)->Wait();
  EXPECT_THAT(Ranges(),
              ElementsAre(std::pair(4000, 96), std::pair(4096, 8192),
                          std::pair(12288, 8192), std::pair(20480, 8192),
                          std::pair(28672, 5)));
}

TEST_F(EngineTest, OnlyWholeBlocksInCongruentMemoryAreDirect) {
  const auto engine = Make(16);
  Read(*engine, 4000, 96 + 4096 + 5)->Wait();
  engine->Start(file_, {.data = memory_.data() + 512, .size_bytes = 4096})
      ->Wait();
  std::vector<int> fds;
  for (const RingEntry& entry : script_->requests()) fds.push_back(entry.fd);
  EXPECT_THAT(fds, ElementsAre(kFd, kDirectFd, kFd, kFd));
}

TEST_F(EngineTest, WithoutADirectDescriptorAllIsBuffered) {
  file_ = FakeFile(/*has_direct=*/false);
  Read(*Make(), 0, 8192)->Wait();
  EXPECT_EQ(script_->requests()[0].fd, kFd);
}

TEST_F(EngineTest, ShortTransfersGoOnWhereTheyStopped) {
  script_->result = [](const RingEntry& entry) {
    return static_cast<int32_t>(std::min<uint32_t>(entry.size_bytes, 4096));
  };
  Read(*Make(), 0, 12288)->Wait();
  EXPECT_THAT(Ranges(), testing::UnorderedElementsAre(std::pair(0, 8192),
                                                      std::pair(4096, 4096),
                                                      std::pair(8192, 4096)));
}

TEST_F(EngineTest, TheRestOfATornBlockIsNotDirect) {
  script_->result = [](const RingEntry& entry) {
    return static_cast<int32_t>(std::min<uint32_t>(entry.size_bytes, 1000));
  };
  Read(*Make(), 0, 4096)->Wait();
  const auto requests = script_->requests();
  ASSERT_EQ(requests.size(), 5U);
  EXPECT_EQ(requests[0].fd, kDirectFd);
  EXPECT_EQ(requests[1].fd, kFd);
  EXPECT_EQ(requests[1].data, memory_.data() + 1000);
  EXPECT_EQ(requests[4].size_bytes, 96U);
}

TEST_F(EngineTest, ADirectRequestThatIsRefusedGoesThroughTheCache) {
  int num_said = 0;
  file_->on_not_direct = [&] { ++num_said; };
  script_->result = [](const RingEntry& entry) {
    return entry.fd == kDirectFd ? -EINVAL
                                 : static_cast<int32_t>(entry.size_bytes);
  };
  Read(*Make(), 0, 4096)->Wait();
  EXPECT_EQ(num_said, 1);
  ASSERT_EQ(script_->requests().size(), 2U);
  EXPECT_EQ(script_->requests()[1].fd, kFd);
  // Otherwise it is an error like any.
  script_->result = [](const RingEntry&) { return -EINVAL; };
  EXPECT_EQ(ErrorOf(Read(*Make(), 0, 4096)).code(), ErrorCode::kUnavailable);
}

TEST_F(EngineTest, InterruptedRequestsAreRepeated) {
  std::atomic<int> count = 0;
  script_->result = [&](const RingEntry& entry) -> int32_t {
    const int i = count++;
    if (i == 0) return -EINTR;
    if (i == 1) return -EAGAIN;
    return static_cast<int32_t>(entry.size_bytes);
  };
  Read(*Make(), 0, 4096)->Wait();
  EXPECT_EQ(script_->requests().size(), 3U);
}

TEST_F(EngineTest, WhatNeverGoesOnIsGivenUp) {
  script_->result = [](const RingEntry&) { return -EAGAIN; };
  EXPECT_EQ(ErrorOf(Read(*Make(), 0, 4096)).code(), ErrorCode::kUnavailable);
}

TEST_F(EngineTest, AnErrorNamesFileAndOffset) {
  script_->result = [](const RingEntry& entry) {
    return entry.offset_bytes == 8192 ? -EIO
                                      : static_cast<int32_t>(entry.size_bytes);
  };
  const auto engine = Make();
  const auto pending = Read(*engine, 0, 3 * 8192);
  for (int again = 0; again < 2; ++again) {
    const Error error = ErrorOf(pending);
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable);
    EXPECT_EQ(error.place().file, "file");
    EXPECT_EQ(error.place().offset_bytes, 8192U);
    EXPECT_THAT(error.what(), HasSubstr("read"));
  }
  EXPECT_TRUE(pending->done());
  // Others go on.
  Read(*engine, 4096, 4096)->Wait();
}

TEST_F(EngineTest, AWriteThatMovesNothingLacksSpace) {
  script_->result = [](const RingEntry&) { return 0; };
  const auto pending = Make()->Start(
      file_, {.is_write = true, .data = memory_.data(), .size_bytes = 4096});
  EXPECT_EQ(ErrorOf(pending).code(), ErrorCode::kResourceExhausted);
}

TEST_F(EngineTest, AReadThatMovesNothingIsTheEndOfTheFile) {
  script_->result = [](const RingEntry& entry) {
    return entry.offset_bytes < 8192 ? static_cast<int32_t>(entry.size_bytes)
                                     : 0;
  };
  const Error error = ErrorOf(Read(*Make(), 4096, 16384));
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.what(), HasSubstr("ends at byte 12288"));
}

TEST_F(EngineTest, AFullQueueMakesTheOthersWait) {
  script_->Hold();
  const auto engine = Make(/*queue_depth=*/3);
  std::vector<PendingPtr> reads;
  for (uint64_t i = 0; i < 10; ++i) {
    reads.push_back(Read(*engine, i * 4096, 4096));
  }
  EXPECT_EQ(script_->requests().size(), 3U);
  script_->Release(1);
  script_->WaitUntilSubmitted(4);
  EXPECT_EQ(script_->requests().size(), 4U);
  EXPECT_FALSE(reads.back()->done());
  script_->Release(9);
  for (const PendingPtr& read : reads) read->Wait();
  EXPECT_EQ(script_->max_under_way(), 3U);
  EXPECT_EQ(Ranges().back().first, 9U * 4096);
}

TEST_F(EngineTest, ATransferLargerThanTheQueueGoesThrough) {
  const auto engine = Make(/*queue_depth=*/1);
  Read(*engine, 0, size_t{1} << 20)->Wait();
  EXPECT_EQ(script_->requests().size(), (size_t{1} << 20) / kPieceBytes);
  EXPECT_EQ(script_->max_under_way(), 1U);
}

TEST_F(EngineTest, ASubmissionIsRepeatedWhileTheKernelLacksMemory) {
  script_->submits = {EAGAIN, EINTR, EBUSY};
  Read(*Make(), 0, 4096)->Wait();
  EXPECT_EQ(script_->requests().size(), 1U);
}

TEST_F(EngineTest, ABrokenQueueFailsEverything) {
  script_->Hold();
  const auto engine = Make(/*queue_depth=*/1);
  const auto first = Read(*engine, 0, 4096);
  const auto waiting = Read(*engine, 4096, 4096);
  script_->submits = {EPERM};
  script_->Release(1);
  first->Wait();
  EXPECT_EQ(ErrorOf(waiting).code(), ErrorCode::kUnavailable);
  EXPECT_EQ(ErrorOf(Read(*engine, 0, 4096)).code(), ErrorCode::kUnavailable);
}

TEST_F(EngineTest, AWaitThatFailsFailsEverything) {
  script_->waits = {EINTR, EBADF};
  const auto engine = Make();
  EXPECT_EQ(ErrorOf(Read(*engine, 0, 4096)).code(), ErrorCode::kUnavailable);
}

TEST_F(EngineTest, TheDestructorWaitsForWhatIsUnderWay) {
  script_->Hold();
  auto engine = Make(/*queue_depth=*/2);
  std::vector<PendingPtr> reads;
  for (uint64_t i = 0; i < 5; ++i) {
    reads.push_back(Read(*engine, i * 4096, 4096));
  }
  std::thread destroyer([&] { engine.reset(); });
  script_->Release(5);
  destroyer.join();
  for (const PendingPtr& read : reads) EXPECT_TRUE(read->done());
}

TEST_F(EngineTest, HandlesKeepTheFileOpenAndMayBeDropped) {
  script_->Hold();
  const auto engine = Make();
  auto pending = Read(*engine, 0, 4096);
  const std::weak_ptr<OpenFile> file = file_;
  file_.reset();
  EXPECT_FALSE(file.expired());
  script_->Release(1);
  pending.reset();
  EXPECT_TRUE(file.expired());
}

TEST_F(EngineTest, ManyThreadsShareOneQueue) {
  const auto engine = Make(/*queue_depth=*/3);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 200; ++i) {
        Read(*engine, (t * 200 + i) * 4096, 4096)->Wait();
      }
    });
  }
  std::ranges::for_each(threads, &std::thread::join);
  auto ranges = Ranges();
  std::ranges::sort(ranges);
  ASSERT_EQ(ranges.size(), 800U);
  for (uint64_t i = 0; i < 800; ++i) EXPECT_EQ(ranges[i].first, i * 4096);
  EXPECT_LE(script_->max_under_way(), 3U);
}

TEST_F(EngineTest, RegisteredMemoryIsNamedInRequests) {
  const auto engine = Make(16);
  const auto registered =
      engine->Register(memory_.span().subspan(8192, 64 * 1024));
  EXPECT_EQ(registered->report().registered_bytes, 64U * 1024);
  EXPECT_EQ(registered->report().shortfall, "");
  const auto buffer_of = [&](size_t begin) {
    engine->Start(file_, {.data = memory_.data() + begin, .size_bytes = 4096})
        ->Wait();
    return script_->requests().back().buffer;
  };
  EXPECT_EQ(buffer_of(4096), -1);
  EXPECT_GE(buffer_of(8192), 0);
  EXPECT_GE(buffer_of(8192 + 60 * 1024), 0);
  EXPECT_EQ(buffer_of(8192 + 64 * 1024), -1);
}

TEST_F(EngineTest, RegistersWhatTheLimitAllows) {
  // 1024, 512, 256 KiB are refused, 128 KiB once taken, then nothing more.
  script_->registers = {ENOMEM, ENOMEM, ENOMEM, 0, ENOMEM, ENOMEM};
  const auto engine = Make();
  const auto registered = engine->Register(memory_.span());
  EXPECT_EQ(registered->report().registered_bytes, 128U * 1024);
  EXPECT_EQ(registered->report().total_bytes, size_t{1} << 20);
  EXPECT_THAT(registered->report().shortfall, HasSubstr("RLIMIT_MEMLOCK"));
}

TEST_F(EngineTest, TheTableOfBuffersIsUsedAgain) {
  const auto engine = Make(4, /*num_buffers=*/1);
  {
    const auto first = engine->Register(memory_.span());
    const auto second = engine->Register(memory_.span());
    EXPECT_THAT(second->report().shortfall, HasSubstr("full"));
    EXPECT_EQ(second->report().registered_bytes, 0U);
  }
  const auto third = engine->Register(memory_.span());
  EXPECT_EQ(third->report().registered_bytes, memory_.size());
}

TEST_F(EngineTest, AQueueWithoutBuffersSaysSo) {
  const auto registered = Make(4, /*num_buffers=*/0)->Register(memory_.span());
  EXPECT_EQ(registered->report().registered_bytes, 0U);
  EXPECT_NE(registered->report().shortfall, "");
}

TEST(MakeEngine, RefusesDepthsThatMakeNoSense) {
  for (const int depth : {-1, 0, 5000}) {
    EXPECT_THROW((void)MakeEngine({.queue_depth = depth}), Error) << depth;
  }
}

}  // namespace
}  // namespace muonstore::os
