#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/os/file_descriptor.h"
#include "src/tier/shared_memory.h"
#include "tests/conformance/tier_suite.h"
#include "tests/testutil/run_ranks.h"
#include "tests/tier/memory_map.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr uint64_t kPage = 4096;

INSTANTIATE_TEST_SUITE_P(PinnedHost, TierConformance,
                         testing::Values(&MakePinnedHostTier));
INSTANTIATE_TEST_SUITE_P(SharedHost, TierConformance,
                         testing::Values(&MakeSharedHostTier));

class HostTier : public testing::TestWithParam<TierFactory> {
 protected:
  std::unique_ptr<Tier> tier_ = GetParam()();
};

INSTANTIATE_TEST_SUITE_P(PinnedHost, HostTier,
                         testing::Values(&MakePinnedHostTier));
INSTANTIATE_TEST_SUITE_P(SharedHost, HostTier,
                         testing::Values(&MakeSharedHostTier));

class LockedHostTier : public HostTier {
 protected:
  void SetUp() override {
    if (!MlockWorks()) {
      GTEST_SKIP() << "mlock does nothing in this build or process";
    }
  }
};

INSTANTIATE_TEST_SUITE_P(PinnedHost, LockedHostTier,
                         testing::Values(&MakePinnedHostTier));
INSTANTIATE_TEST_SUITE_P(SharedHost, LockedHostTier,
                         testing::Values(&MakeSharedHostTier));

ArenaOptions Pages(uint64_t num_pages, Pinning pinning) {
  return {.name = "master",
          .block_bytes = {num_pages * kPage},
          .num_slots = 1,
          .pinning = pinning};
}

// A process of its own that may lock so much and no more.
void WithLockLimit(uint64_t limit_bytes, const std::function<void()>& check) {
  testutil::RunRanks(1, [&](int32_t) {
    const rlimit limit{limit_bytes, limit_bytes};
    ASSERT_EQ(::setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    if (::geteuid() == 0) {
      // The limit does not bind those who may administer memory.
      ASSERT_EQ(::setresuid(65534, 65534, 65534), 0);
    }
    check();
  });
}

TEST_P(LockedHostTier, LocksWhatTheLimitAllows) {
  WithLockLimit(100 * kPage, [&] {
    const auto arena = tier_->CreateArena(Pages(60, Pinning::kTry));
    const PinReport& report = arena->pin_report();
    EXPECT_EQ(report.method, "mlock");
    EXPECT_EQ(report.pinned_bytes, 60 * kPage);
    EXPECT_EQ(report.shortfall, "");
    EXPECT_EQ(LookAt(arena->all_memory()).locked_bytes, 60 * kPage);
    EXPECT_EQ(LockedBytes(), 60 * kPage);
  });
}

TEST_P(LockedHostTier, LocksAPartWhereTheLimitIsSmallerAndSaysSo) {
  WithLockLimit(100 * kPage, [&] {
    const auto first = tier_->CreateArena(Pages(60, Pinning::kTry));
    const auto second = tier_->CreateArena(Pages(60, Pinning::kTry));
    const PinReport& report = second->pin_report();
    EXPECT_EQ(report.pinned_bytes, 40 * kPage);
    EXPECT_EQ(report.total_bytes, 60 * kPage);
    EXPECT_THAT(report.shortfall,
                StartsWith("RLIMIT_MEMLOCK is 409600 bytes, of which 245760"));
    EXPECT_EQ(LockedBytes(), 100 * kPage);
    const auto third = tier_->CreateArena(Pages(1, Pinning::kTry));
    EXPECT_EQ(third->pin_report().method, "none");
    EXPECT_NE(third->pin_report().shortfall, "");
  });
}

TEST_P(LockedHostTier, RequiredPinningIsAllOrAnError) {
  WithLockLimit(100 * kPage, [&] {
    EXPECT_EQ(
        tier_->CreateArena(Pages(100, Pinning::kRequired))->pin_report().method,
        "mlock");
    try {
      (void)tier_->CreateArena(Pages(101, Pinning::kRequired));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
      EXPECT_THAT(error.what(), HasSubstr("arena master"));
      EXPECT_THAT(error.what(), HasSubstr("ulimit -l"));
      EXPECT_EQ(error.place().expected, "413696 bytes locked");
    }
    EXPECT_EQ(LockedBytes(), 0U);
  });
}

TEST_P(HostTier, OffLocksNothing) {
  const uint64_t before = LockedBytes();
  const auto arena = tier_->CreateArena(Pages(60, Pinning::kOff));
  std::ranges::fill(arena->memory(0, 0), std::byte{1});
  EXPECT_EQ(LockedBytes(), before);
  EXPECT_EQ(LookAt(arena->all_memory()).locked_bytes, 0U);
}

TEST_P(LockedHostTier, FillingAnArenaKeepsItPinned) {
  WithLockLimit(100 * kPage, [&] {
    const auto arena = tier_->CreateArena(Pages(60, Pinning::kTry));
    const std::vector<std::byte> loaded(60 * kPage, std::byte{3});
    arena->Write({0, 0, 0}, loaded)->Wait();
    EXPECT_EQ(LookAt(arena->all_memory()).locked_bytes, 60 * kPage);
    EXPECT_EQ(arena->memory(0, 0)[60 * kPage - 1], std::byte{3});
  });
}

TEST_P(LockedHostTier, AnArenaThatGoesUnlocksItsMemory) {
  const uint64_t before = LockedBytes();
  { const auto arena = tier_->CreateArena(Pages(10, Pinning::kTry)); }
  EXPECT_EQ(LockedBytes(), before);
}

TEST_P(HostTier, MemoryThatNobodyTouchedIsNotThereYet) {
  const auto arena = tier_->CreateArena(Pages(4096, Pinning::kOff));
  EXPECT_EQ(LookAt(arena->all_memory()).resident_bytes, 0U);
}

TEST(PinnedHostTier, IsPrivateMemory) {
  const auto tier = MakePinnedHostTier();
  const auto arena = tier->CreateArena(Pages(2, Pinning::kOff));
  EXPECT_EQ(tier->name(), "pinned host");
  EXPECT_EQ(arena->shared_fd(), -1);
  EXPECT_EQ(LookAt(arena->all_memory()).permissions, "rw-p");
}

TEST(SharedHostTier, PeersReadTheOwnersMemoryAndCannotWriteIt) {
  const auto tier = MakeSharedHostTier();
  const auto arena = tier->CreateArena(Pages(2, Pinning::kOff));
  EXPECT_EQ(tier->name(), "shared host");
  const auto peer =
      tier::SharedMemory::Adopt(os::FileDescriptor(::dup(arena->shared_fd())),
                                2 * kPage, tier::Access::kRead);
  arena->memory(0, 0)[kPage + 5] = std::byte{77};
  EXPECT_EQ(peer.memory()[kPage + 5], std::byte{77});
  EXPECT_EQ(LookAt(peer.memory()).permissions, "r--s");
  EXPECT_EQ(::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED,
                   arena->shared_fd(), 0),
            MAP_FAILED);
  EXPECT_EQ(errno, EPERM);
}

TEST(SharedHostTier, NobodyCanCutItShort) {
  const auto arena = MakeSharedHostTier()->CreateArena(Pages(2, Pinning::kOff));
  EXPECT_NE(::ftruncate(arena->shared_fd(), 0), 0);
  EXPECT_NE(::ftruncate(arena->shared_fd(), 1 << 20), 0);
}

TEST(SharedHostTier, HasNoNameInAnyFileSystem) {
  const auto arena = MakeSharedHostTier()->CreateArena(Pages(2, Pinning::kOff));
  EXPECT_EQ(LookAt(arena->all_memory()).path, "/memfd:master (deleted)");
}

TEST(SharedMemory, RefusesAnotherSizeThanWasSaid) {
  const auto shared =
      tier::SharedMemory::Create("x", 2 * kPage, tier::Access::kWrite);
  try {
    (void)tier::SharedMemory::Adopt(os::FileDescriptor(::dup(shared.fd())),
                                    3 * kPage, tier::Access::kRead);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_EQ(error.place().expected, "12288 bytes");
    EXPECT_EQ(error.place().found, "8192 bytes");
  }
}

}  // namespace
}  // namespace muonstore
