// Whatever fails and wherever: the old tag or the new one, never a mix, and the
// next save cleans up.
#include <filesystem>
#include <set>

#include <gtest/gtest.h>

#include "formats/native/checkpoint.h"
#include "formats/native/file_names.h"
#include "formats/native/verify.h"
#include "muonstore/open.h"
#include "src/base/str.h"
#include "tests/native/carried_checkpoint.h"
#include "tests/native/compare.h"
#include "tests/native/fault_file_system.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

namespace stdfs = std::filesystem;

std::set<std::string> NamesIn(const std::string& directory) {
  std::set<std::string> names;
  if (stdfs::exists(directory)) {
    for (const auto& entry : stdfs::directory_iterator(directory)) {
      names.insert(entry.path().filename().string());
    }
  }
  return names;
}

enum class Before { kNothing, kNative, kDeepSpeed };
enum class Failure { kOneError, kTornWrite, kDeath, kPowerLoss };

struct Case {
  Before before;
  Failure failure;
};

class NativeCrash : public testing::TestWithParam<Case> {
 protected:
  NativeCrash()
      : old_(SmallCarriedCheckpoint(1)), new_(SmallCarriedCheckpoint(3)) {}

  static SinkOptions Options() {
    return {.tag = "tag", .overwrite = true, .block_bytes = 4096};
  }

  static std::shared_ptr<FileSystem> NoFault() {
    return std::make_shared<FaultFileSystem>(FaultFileSystem::Fault{});
  }

  std::string TagPath() const { return root_ + "/tag"; }

  // A fresh root with what was there before.
  void Prepare(int64_t n) {
    root_ = (scratch_ / StrCat("root", n)).string();
    if (GetParam().before == Before::kNative) {
      Save(NoFault(), root_, Options(), *old_,
           LayoutOf(*old_, {.num_ranks = 3}));
    } else if (GetParam().before == Before::kDeepSpeed) {
      stdfs::create_directories(root_);
      stdfs::copy(testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder /
                      "ckpt" / "step5",
                  TagPath());
    }
  }

  // Returns whether the save said that it succeeded.
  bool SaveWithFault(int64_t n, int64_t& num_changes) {
    const Failure failure = GetParam().failure;
    const auto fs = std::make_shared<FaultFileSystem>(FaultFileSystem::Fault{
        .at = n,
        .dies = failure == Failure::kDeath || failure == Failure::kPowerLoss,
        .tears = failure == Failure::kTornWrite});
    bool saved = false;
    try {
      Save(fs, root_, Options(), *new_, LayoutOf(*new_, {.num_ranks = 2}));
      saved = true;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted) << error.what();
    }
    num_changes = fs->num_changes();
    if (failure == Failure::kPowerLoss) {
      fs->LosePower();
    }
    return saved;
  }

  // True where the tag is the new one; it must be that or what was before.
  bool IsNew() const {
    const auto fs = PosixFileSystem();
    if (!stdfs::exists(TagPath() + "/manifest.json")) {
      ExpectOldForeign();
      return false;
    }
    const VerifyReport report = VerifyTag(fs, TagPath(), {});
    EXPECT_TRUE(report.whole()) << report.findings.at(0).ToString();
    const auto checkpoint = NativeCheckpoint::Open(fs, TagPath(), {});
    const bool is_new = checkpoint->info().num_ranks == 2;
    ExpectSameTensors(is_new ? *new_ : *old_, *checkpoint);
    EXPECT_TRUE(is_new || GetParam().before == Before::kNative);
    return is_new;
  }

  void ExpectOldForeign() const {
    EXPECT_NE(GetParam().before, Before::kNative);
    if (GetParam().before == Before::kDeepSpeed) {
      EXPECT_TRUE(VerifyCheckpoint(PosixFileSystem(), TagPath()).whole());
    }
  }

  // After another save into the root: nothing but what belongs there.
  void ExpectCleanAfterNextSave(bool is_new) const {
    Save(NoFault(), root_, {.tag = "other"}, *old_, LayoutOf(*old_, {}));
    const std::set<std::string> names = NamesIn(TagPath());
    std::set<std::string> ids;
    for (const std::string& name : names) {
      ids.insert(SaveIdOf(name));
      EXPECT_NE(name.substr(0, 14), "manifest.json.");
    }
    ids.erase("");
    const bool native = is_new || GetParam().before == Before::kNative;
    EXPECT_EQ(ids.size(), native ? 1U : 0U);
    EXPECT_EQ(names.contains("checkpoint.h5"), native);
    if (!native && GetParam().before == Before::kNothing) {
      EXPECT_TRUE(names.empty());  // An empty folder may stay.
    }
    EXPECT_EQ(IsNew(), is_new);
  }

  testutil::Scratch scratch_;
  std::string root_;
  std::unique_ptr<Checkpoint> old_;
  std::unique_ptr<Checkpoint> new_;
};

TEST_P(NativeCrash, OldOrNewAtEveryOperation) {
  int num_old = 0;
  int num_new = 0;
  // Until a save is over before its fault.
  int64_t num_changes = 1;
  for (int64_t n = 0; n <= num_changes; ++n) {
    SCOPED_TRACE(StrCat("fault at operation ", n));
    Prepare(n);
    const std::set<std::string> before = NamesIn(TagPath());
    const bool saved = SaveWithFault(n, num_changes);
    EXPECT_TRUE(saved || n < num_changes);
    const bool is_new = IsNew();
    EXPECT_TRUE(is_new || !saved) << "said to be saved, and is not there";
    if (!is_new && (GetParam().failure == Failure::kOneError ||
                    GetParam().failure == Failure::kTornWrite)) {
      EXPECT_EQ(NamesIn(TagPath()), before) << "a live process leaves nothing";
    }
    ExpectCleanAfterNextSave(is_new);
    (is_new ? num_new : num_old) += 1;
    stdfs::remove_all(root_);
    ASSERT_LT(n, 1000);
    if (HasFailure()) {
      break;
    }
  }
  EXPECT_GT(num_old, 10);
  EXPECT_GT(num_new, 2);
}

std::string CaseName(const testing::TestParamInfo<Case>& param) {
  constexpr const char* kBefore[] = {"Nothing", "Native", "DeepSpeed"};
  constexpr const char* kFailure[] = {"OneError", "TornWrite", "Death",
                                      "PowerLoss"};
  return StrCat(kFailure[static_cast<int>(param.param.failure)], "Over",
                kBefore[static_cast<int>(param.param.before)]);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Before before :
       {Before::kNothing, Before::kNative, Before::kDeepSpeed}) {
    for (const Failure failure : {Failure::kOneError, Failure::kTornWrite,
                                  Failure::kDeath, Failure::kPowerLoss}) {
      cases.push_back({before, failure});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, NativeCrash, testing::ValuesIn(Cases()),
                         CaseName);

}  // namespace
}  // namespace muonstore::native
