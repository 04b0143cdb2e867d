// What the next writer takes for a leftover, and what it leaves alone.
#include "formats/native/leftovers.h"

#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "formats/native/file_names.h"
#include "formats/native/verify.h"
#include "muonstore/error.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

namespace stdfs = std::filesystem;

class LeftoversTest : public testing::Test {
 protected:
  LeftoversTest() { SaveAs("t"); }

  void SaveAs(const std::string& tag) {
    const auto source = SmallCheckpoint();
    Save(fs_, root(), {.tag = tag}, *source,
         LayoutOf(*source, {.stage = 2, .num_ranks = 2}));
  }
  void Clean() {
    os::OutputRoot root(fs_, this->root());
    CleanLeftovers(root);
  }
  std::string root() const { return (scratch_ / "root").string(); }
  stdfs::path Path(const std::string& name) const {
    return scratch_ / "root" / name;
  }

  testutil::Scratch scratch_;
  std::shared_ptr<FileSystem> fs_ = PosixFileSystem();
};

TEST_F(LeftoversTest, ASaveThatNeverCommittedGoes) {
  stdfs::rename(Path("t"), scratch_ / "died");
  SaveAs("other");
  stdfs::rename(scratch_ / "died", Path("died"));
  stdfs::remove(Path("died/manifest.json"));
  stdfs::remove(Path("died/checkpoint.h5"));
  Clean();
  EXPECT_FALSE(stdfs::exists(Path("died")));
}

// As `cp -r t copy` goes, before it comes to the manifest.
TEST_F(LeftoversTest, ACopyOfATagThatIsStillBeingMadeStays) {
  stdfs::create_directory(Path("copy"));
  const std::string rank_file = RankFileName(0, SaveIdIn(Path("t").string()));
  stdfs::copy_file(Path("t") / rank_file, Path("copy") / rank_file);
  Clean();
  EXPECT_TRUE(stdfs::exists(Path("copy") / rank_file));
  stdfs::copy(
      Path("t"), Path("copy"),
      stdfs::copy_options::recursive | stdfs::copy_options::overwrite_existing);
  Clean();
  EXPECT_TRUE(VerifyTag(fs_, Path("copy").string(), {}).whole());
}

TEST_F(LeftoversTest, AFolderOfALeftoversNameIsNotOurs) {
  const std::string name = RankFileName(9, "0123456789abcdef");
  stdfs::create_directories(Path("t") / name);
  Clean();
  EXPECT_TRUE(stdfs::exists(Path("t") / name));
  EXPECT_TRUE(VerifyTag(fs_, Path("t").string(), {}).whole());
}

TEST_F(LeftoversTest, NothingIsWrittenThroughALinkedTag) {
  stdfs::create_directory_symlink("t", Path("best"));
  EXPECT_THROW(SaveAs("best"), Error);
  EXPECT_TRUE(stdfs::is_symlink(Path("best")));
  EXPECT_TRUE(VerifyTag(fs_, Path("t").string(), {}).whole());
}

}  // namespace
}  // namespace muonstore::native
