// Whatever fails and wherever: the old tag or the new one, never a mix, and the
// next save cleans up. Over nothing, over a native tag, over DeepSpeed's.
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
#include "tests/native/save.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"
#include "tests/testutil/simulated_file_system.h"

namespace muonstore::native {
namespace {

using testutil::Fault;
using testutil::SimulatedFileSystem;
using Disk = std::shared_ptr<SimulatedFileSystem>;

constexpr const char* kRoot = "/sim/root";
constexpr const char* kTag = "/sim/root/tag";
// What was not synced survives in another way each time.
constexpr uint64_t kNumRestarts = 3;

enum class Before { kNothing, kNative, kDeepSpeed };

struct Case {
  Before before;
  Fault fault;
};

void CopyToDisk(const std::filesystem::path& from, FileSystem& fs) {
  fs.CreateDirectories(kTag);
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const auto file =
        fs.CreateFile(StrCat(kTag, "/", entry.path().filename().string()));
    const std::string bytes = testutil::ReadBytes(entry.path());
    file->WriteAt(0, std::as_bytes(std::span(bytes)));
    file->Sync();
    file->Close();
  }
  for (const char* directory : {kTag, kRoot, "/sim"}) {
    fs.SyncDirectory(directory);
  }
}

class NativeCrash : public testing::TestWithParam<Case> {
 protected:
  NativeCrash()
      : old_(SmallCarriedCheckpoint(1)),
        new_(SmallCarriedCheckpoint(3)),
        start_(
            std::make_shared<SimulatedFileSystem>(PosixFileSystem(), "/sim")) {
    if (GetParam().before == Before::kNative) {
      SaveTag(start_, *old_, 3);
    } else if (GetParam().before == Before::kDeepSpeed) {
      CopyToDisk(testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder /
                     "ckpt" / "step5",
                 *start_);
    }
  }

  static void SaveTag(const Disk& fs, const Checkpoint& source,
                      int32_t num_ranks) {
    Save(fs, kRoot, {.tag = "tag", .overwrite = true, .block_bytes = 4096},
         source, LayoutOf(source, {.num_ranks = num_ranks}));
  }

  // Returns whether the save said that it succeeded.
  bool TrySave(const Disk& fs) const {
    try {
      SaveTag(fs, *new_, 2);
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  static std::set<std::string> NamesInTag(const SimulatedFileSystem& fs) {
    const std::string prefix = "root/tag/";
    std::set<std::string> names;
    for (const auto& [path, bytes] : fs.Everything()) {
      if (path.starts_with(prefix) && path.size() > prefix.size()) {
        names.insert(path.substr(prefix.size()));
      }
    }
    return names;
  }

  // True where the tag is the new one; it must be that or what was before.
  bool IsNew(const Disk& fs) const {
    if (!NamesInTag(*fs).contains("manifest.json")) {
      EXPECT_NE(GetParam().before, Before::kNative);
      if (GetParam().before == Before::kDeepSpeed) {
        EXPECT_TRUE(VerifyCheckpoint(fs, kTag).whole());
      }
      return false;
    }
    const VerifyReport report = VerifyTag(fs, kTag, {});
    EXPECT_TRUE(report.whole()) << report.findings.at(0).ToString();
    const auto checkpoint = NativeCheckpoint::Open(fs, kTag, {});
    const bool is_new = checkpoint->info().num_ranks == 2;
    ExpectSameTensors(is_new ? *new_ : *old_, *checkpoint);
    EXPECT_TRUE(is_new || GetParam().before == Before::kNative);
    return is_new;
  }

  // After another save into the root: nothing but what belongs there.
  void ExpectCleanAfterNextSave(const Disk& fs, bool is_new) const {
    Save(fs, kRoot, {.tag = "other"}, *old_, LayoutOf(*old_, {}));
    const std::set<std::string> names = NamesInTag(*fs);
    std::set<std::string> ids;
    for (const std::string& name : names) {
      ids.insert(SaveIdOf(name));
      EXPECT_FALSE(name.starts_with("manifest.json.")) << name;
    }
    ids.erase("");
    const bool native = is_new || GetParam().before == Before::kNative;
    EXPECT_EQ(ids.size(), native ? 1U : 0U);
    EXPECT_EQ(names.contains("checkpoint.h5"), native);
    EXPECT_EQ(IsNew(fs), is_new);
  }

  void Check(const Disk& fs, bool saved) {
    const bool is_new = IsNew(fs);
    EXPECT_TRUE(is_new || !saved) << "said to be saved, and is not there";
    (is_new ? num_new_ : num_old_) += 1;
    ExpectCleanAfterNextSave(fs, is_new);
  }

  std::unique_ptr<Checkpoint> old_;
  std::unique_ptr<Checkpoint> new_;
  Disk start_;
  int num_old_ = 0;
  int num_new_ = 0;
};

TEST_P(NativeCrash, OldOrNewAtEveryOperation) {
  const auto sound = start_->Copy();
  const int64_t first = sound->num_operations();
  ASSERT_TRUE(TrySave(sound));
  const int64_t count = sound->num_operations() - first;
  for (int64_t n = 0; n < count && !HasFailure(); ++n) {
    SCOPED_TRACE(StrCat("fault at operation ", n));
    const auto fs = start_->Copy();
    fs->FailAfter(n, GetParam().fault);
    const bool saved = TrySave(fs);
    if (fs->has_power()) {
      if (!IsNew(fs) && GetParam().before != Before::kNothing) {
        EXPECT_EQ(NamesInTag(*fs), NamesInTag(*start_))
            << "a live process leaves nothing";
      }
      Check(fs, saved);
    }
    for (uint64_t seed = 0; seed < kNumRestarts && !fs->has_power(); ++seed) {
      const auto machine = fs->Copy();
      machine->Restart(seed);
      Check(machine, saved);
    }
  }
  EXPECT_GT(num_old_, 10);
  EXPECT_GT(num_new_, 2);
}

std::string CaseName(const testing::TestParamInfo<Case>& param) {
  constexpr const char* kBefore[] = {"Nothing", "Native", "DeepSpeed"};
  constexpr const char* kFault[] = {"OneError", "NoSpace", "ShortWrite",
                                    "PowerLoss", "TornWrite"};
  return StrCat(kFault[static_cast<int>(param.param.fault)], "Over",
                kBefore[static_cast<int>(param.param.before)]);
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Before before :
       {Before::kNothing, Before::kNative, Before::kDeepSpeed}) {
    for (const Fault fault : {Fault::kError, Fault::kShortWrite,
                              Fault::kPowerLoss, Fault::kTornWrite}) {
      cases.push_back({before, fault});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cases, NativeCrash, testing::ValuesIn(Cases()),
                         CaseName);

}  // namespace
}  // namespace muonstore::native
