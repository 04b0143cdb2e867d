// Files that are carried beside a tag: whatever fails while they are copied,
// and whenever, each is there whole or not at all, and the next writer cleans
// up.
#include "tools/ckpt_convert/carry.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "src/os/output_root.h"
#include "tests/testutil/scratch.h"
#include "tests/testutil/simulated_file_system.h"

namespace muonstore::tools {
namespace {

namespace stdfs = std::filesystem;
using testutil::Fault;
using testutil::SimulatedFileSystem;

constexpr const char* kRoot = "/sim/root";
using Contents = std::map<std::string, std::string>;

// More than one block of a copy, each with bytes of its own.
std::string LongText() {
  std::string text;
  for (int i = 0; text.size() < (size_t{5} << 19); ++i) {
    text += std::to_string(i) + "\n";
  }
  return text;
}

class CarryTest : public testing::Test {
 protected:
  CarryTest() {
    const stdfs::path root = scratch_ / "source";
    stdfs::create_directories(root / "step5");
    stdfs::create_directories(root / "logs/deep");
    testutil::WriteBytes(root / "step5/mp_rank_00_model_states.pt", "a tag");
    testutil::WriteBytes(root / "step5/notes.txt", "of the tag");
    testutil::WriteBytes(root / "config.json", "{}");
    testutil::WriteBytes(root / "logs/a.txt", "a");
    testutil::WriteBytes(root / "logs/deep/long.txt", LongText());
    start_ = std::make_shared<SimulatedFileSystem>(PosixFileSystem(), "/sim");
    start_->CreateDirectories(std::string(kRoot) + "/tag");
    start_->SyncDirectory(kRoot);
    start_->SyncDirectory("/sim");
    const auto whole = start_->Copy();
    Carry(whole);
    whole_ = whole->Everything();
  }

  void Carry(const std::shared_ptr<SimulatedFileSystem>& fs) const {
    os::OutputRoot root(fs, kRoot);
    StagedCarry carry(root, FindExtras(*fs, Places()), [] {});
    carry.Commit();
  }

  bool TryCarry(const std::shared_ptr<SimulatedFileSystem>& fs) const {
    try {
      Carry(fs);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  tools::Places Places() const {
    tools::Places places;
    places.source_path = (scratch_ / "source/step5").string();
    places.source_root = (scratch_ / "source").string();
    places.target_root = kRoot;
    places.tag = "tag";
    return places;
  }

  // What has come, but for what waits in hidden folders.
  static Contents Visible(const SimulatedFileSystem& fs) {
    Contents visible = fs.Everything();
    std::erase_if(visible, [](const auto& file) {
      return file.first.find("muonstore-") != std::string::npos;
    });
    return visible;
  }

  // Each file and folder that is there is as it should be; folders come with
  // all that is in them.
  void ExpectWholeOrAbsent(const SimulatedFileSystem& fs) const {
    const Contents visible = Visible(fs);
    for (const auto& [path, bytes] : visible) {
      const auto it = whole_.find(path);
      ASSERT_NE(it, whole_.end()) << path;
      EXPECT_TRUE(it->second == bytes) << path;
    }
    const auto count = [](const Contents& files) {
      return std::count_if(files.begin(), files.end(), [](const auto& file) {
        return file.first.find("logs") != std::string::npos;
      });
    };
    if (count(visible) != 0) {
      EXPECT_EQ(count(visible), count(whole_));
    }
  }

  void ExpectNextCleansUp(
      const std::shared_ptr<SimulatedFileSystem>& fs) const {
    ASSERT_TRUE(TryCarry(fs));
    EXPECT_TRUE(fs->Everything() == whole_);
  }

  int64_t NumOperations() const {
    const auto fs = start_->Copy();
    const int64_t before = fs->num_operations();
    Carry(fs);
    return fs->num_operations() - before;
  }

  testutil::Scratch scratch_;
  std::shared_ptr<SimulatedFileSystem> start_;
  Contents whole_;
};

TEST_F(CarryTest, CopiesEverything) {
  EXPECT_EQ(whole_.size(), 8U) << "four files, four folders";
  EXPECT_GT(NumOperations(), 30);
}

TEST_F(CarryTest, AFailureAnywhere) {
  const int64_t count = NumOperations();
  for (const Fault fault :
       {Fault::kError, Fault::kNoSpace, Fault::kShortWrite}) {
    int num_failed = 0;
    for (int64_t n = 0; n < count; ++n) {
      SCOPED_TRACE("operation " + std::to_string(n));
      const auto fs = start_->Copy();
      fs->FailAfter(n, fault);
      num_failed += TryCarry(fs) ? 0 : 1;
      ExpectWholeOrAbsent(*fs);
      ExpectNextCleansUp(fs);
      if (HasFailure()) return;
    }
    EXPECT_GT(num_failed, count / 2);
  }
}

TEST_F(CarryTest, ALossOfPowerAnywhere) {
  const int64_t count = NumOperations();
  for (const Fault fault : {Fault::kPowerLoss, Fault::kTornWrite}) {
    for (int64_t n = 0; n < count; ++n) {
      SCOPED_TRACE("operation " + std::to_string(n));
      const auto fs = start_->Copy();
      fs->FailAfter(n, fault);
      (void)TryCarry(fs);
      if (fs->has_power()) continue;
      fs->Restart(static_cast<uint64_t>(n));
      ExpectWholeOrAbsent(*fs);
      ExpectNextCleansUp(fs);
      if (HasFailure()) return;
    }
  }
}

TEST_F(CarryTest, AStopBetweenBlocksLeavesNothing) {
  for (int stop_at = 1;; ++stop_at) {
    const auto fs = start_->Copy();
    const Contents before = fs->Everything();
    int num_calls = 0;
    os::OutputRoot root(fs, kRoot);
    std::optional<StagedCarry> carry;
    try {
      carry.emplace(root, FindExtras(*fs, Places()), [&] {
        if (++num_calls == stop_at) {
          throw Error(ErrorCode::kUnavailable, "stopped");
        }
      });
      EXPECT_GT(stop_at, 8) << "files, folders and blocks";
      return;
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "stopped");
    }
    EXPECT_TRUE(Visible(*fs) == before) << stop_at;
    EXPECT_FALSE(fs->Stat(std::string(kRoot) + "/..carried.muonstore-partial"));
  }
}

}  // namespace
}  // namespace muonstore::tools
