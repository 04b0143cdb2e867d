// A file system that is really full, under the real program.
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/scratch.h"
#include "tests/tools/cli.h"
#include "tests/tools/convert_cli.h"

namespace muonstore::testutil {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

namespace stdfs = std::filesystem;

// A tmpfs of so many KiB while it lives.
class SmallDisk {
 public:
  SmallDisk(const stdfs::path& at, int size_kib) : path_(at) {
    stdfs::create_directories(path_);
    const std::string options = "size=" + std::to_string(size_kib) + "k";
    is_mounted_ =
        ::mount("tmpfs", path_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (is_mounted_) ::umount(path_.c_str());
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool is_mounted() const { return is_mounted_; }
  // Leaves this much free.
  void FillUpTo(uint64_t free_bytes) const {
    const uint64_t available = stdfs::space(path_).available;
    ASSERT_GT(available, free_bytes);
    WriteBytes(path_ / "filler", std::string(available - free_bytes, 'x'));
  }

 private:
  stdfs::path path_;
  bool is_mounted_ = false;
};

class FullDiskTest : public testing::TestWithParam<std::string> {
 protected:
  FullDiskTest() : disk_(scratch_ / "disk", 2048) {}

  ProcessResult Convert(const std::vector<std::string>& more) const {
    std::vector<std::string> line = {source_, (scratch_ / "disk/out").string(),
                                     "--to", GetParam()};
    line.insert(line.end(), more.begin(), more.end());
    return RunConvert(line);
  }

  const std::string source_ = CheckpointRoot("s2-ws2-bf16-none-base");
  Scratch scratch_;
  SmallDisk disk_;
};

// At every amount of free space: checked before, found out while writing, or
// enough. Never something in between.
TEST_P(FullDiskTest, LeavesTheOldTagAndNothingElse) {
  if (!disk_.is_mounted()) GTEST_SKIP() << "needs root, to mount a tmpfs";
  ASSERT_EQ(Convert({}).exit_code, 0);
  const auto before = Snapshot(scratch_ / "disk/out");
  int num_full = 0;
  bool got_through = false;
  for (uint64_t free_kib = 4; free_kib <= 512 && !got_through; free_kib += 12) {
    SCOPED_TRACE(free_kib);
    disk_.FillUpTo(free_kib << 10);
    const ProcessResult result = Convert({"--overwrite", "--verify"});
    stdfs::remove(scratch_ / "disk/filler");
    got_through = result.exit_code == 0;
    if (got_through) break;
    ++num_full;
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_THAT(result.err, AnyOf(HasSubstr("not enough space"),
                                  HasSubstr("No space left")));
    EXPECT_EQ(Snapshot(scratch_ / "disk/out"), before);
  }
  EXPECT_GT(num_full, 3);
  EXPECT_TRUE(got_through);
}

INSTANTIATE_TEST_SUITE_P(Formats, FullDiskTest,
                         testing::Values("deepspeed", "native", "safetensors"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace muonstore::testutil
