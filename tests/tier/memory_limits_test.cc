#include "src/tier/memory_limits.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/testutil/scratch.h"

namespace muonstore::tier {
namespace {

// A made-up /proc and /sys/fs/cgroup.
class MemoryLimits : public testing::Test {
 protected:
  MemoryLimits() {
    files_.proc = (scratch_ / "proc").string();
    files_.cgroup = (scratch_ / "cgroup").string();
    Put("proc/meminfo",
        "MemTotal:       4000 kB\nMemAvailable:   3000 kB\nMemFree: 1 kB\n");
  }

  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path full = scratch_ / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  testutil::Scratch scratch_;
  MemoryFiles files_;
};

TEST_F(MemoryLimits, WithoutGroupsTheSystemDecides) {
  EXPECT_EQ(AvailableMemoryBytes(files_), 3000U * 1024);
}

TEST_F(MemoryLimits, AVersion2GroupLimitsAndItsCacheDoesNotCount) {
  Put("proc/self/cgroup", "0::/job/rank\n");
  Put("cgroup/job/rank/memory.max", "1000000\n");
  Put("cgroup/job/rank/memory.current", "700000\n");
  Put("cgroup/job/rank/memory.stat", "anon 1\ninactive_file 200000\n");
  EXPECT_EQ(AvailableMemoryBytes(files_), 500000U);
}

TEST_F(MemoryLimits, TheTightestParentCounts) {
  Put("proc/self/cgroup", "0::/job/rank\n");
  Put("cgroup/job/rank/memory.max", "max\n");
  Put("cgroup/job/rank/memory.current", "700000\n");
  Put("cgroup/job/memory.max", "900000\n");
  Put("cgroup/job/memory.current", "800000\n");
  EXPECT_EQ(AvailableMemoryBytes(files_), 100000U);
}

TEST_F(MemoryLimits, AGroupAboveItsLimitLeavesNothing) {
  Put("proc/self/cgroup", "0::/\n");
  Put("cgroup/memory.max", "1000\n");
  Put("cgroup/memory.current", "5000\n");
  EXPECT_EQ(AvailableMemoryBytes(files_), 0U);
}

TEST_F(MemoryLimits, AVersion1GroupLimits) {
  Put("proc/self/cgroup", "9:cpu:/x\n4:memory:/box/one\n0::/\n");
  Put("cgroup/memory/box/one/memory.limit_in_bytes", "1000000\n");
  Put("cgroup/memory/box/one/memory.usage_in_bytes", "300000\n");
  Put("cgroup/memory/box/one/memory.stat", "total_inactive_file 100000\n");
  EXPECT_EQ(AvailableMemoryBytes(files_), 800000U);
}

TEST_F(MemoryLimits, AContainersRootIsItsGroup) {
  Put("proc/self/cgroup", "4:memory:/not/seen/from/inside\n");
  Put("cgroup/memory/memory.limit_in_bytes", "1000000\n");
  Put("cgroup/memory/memory.usage_in_bytes", "400000\n");
  EXPECT_EQ(AvailableMemoryBytes(files_), 600000U);
}

TEST_F(MemoryLimits, WhatIsLockedAlreadyCounts) {
  Put("proc/self/status", "VmSize: 9 kB\nVmLck:\t     40 kB\n");
  EXPECT_EQ(ReadLockLimit(files_).locked_bytes, 40U * 1024);
}

TEST(LockLimit, LeavesNothingWhereMoreIsLocked) {
  EXPECT_EQ((LockLimit{.limit_bytes = 10, .locked_bytes = 11}).left_bytes(),
            0U);
  EXPECT_EQ((LockLimit{.limit_bytes = 10, .locked_bytes = 3}).left_bytes(), 7U);
}

}  // namespace
}  // namespace muonstore::tier
