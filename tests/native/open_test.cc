// Native tags behind the door to all checkpoints, beside DeepSpeed's.
#include "muonstore/open.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/str.h"
#include "tests/native/compare.h"
#include "tests/native/save.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using testing::HasSubstr;
namespace stdfs = std::filesystem;

// A root with DeepSpeed's step5 and a native copy of it, "native5".
class NativeOpen : public testing::Test {
 protected:
  NativeOpen() {
    scratch_.Copy(
        testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder / "ckpt",
        "root");
    source_ = OpenCheckpoint(fs_, Root(), {.tag = "step5"});
    os::OutputRoot root(fs_, Root());
    const TargetLayout layout =
        LayoutOf(*source_, {.stage = 3, .num_ranks = 3});
    const auto sink =
        MakeNativeSink(root, {.tag = "native5"}, *source_, layout);
    Fill(*sink, *source_);
    sink->Commit();
  }

  std::string Root() const { return (scratch_ / "root").string(); }

  testutil::Scratch scratch_;
  std::shared_ptr<FileSystem> fs_ = PosixFileSystem();
  std::unique_ptr<Checkpoint> source_;
};

TEST_F(NativeOpen, EveryWayToNameTheTag) {
  for (const auto& checkpoint :
       {OpenCheckpoint(fs_, Root(), {.tag = "native5"}).release(),
        OpenCheckpoint(fs_, Root() + "/native5").release(),
        OpenCheckpoint(fs_, Root() + "/native5/",
                       {.headers_of_rank_zero_only = true})
            .release()}) {
    const std::unique_ptr<Checkpoint> owner(checkpoint);
    EXPECT_EQ(owner->info().format, "native");
    EXPECT_EQ(owner->info().tag, "native5");
    EXPECT_EQ(owner->info().producer, "muonstore, from DeepSpeed 0.19.8");
  }
  EXPECT_EQ(OpenCheckpoint(fs_, Root())->info().format, "deepspeed")
      << "latest still names step5";
}

TEST_F(NativeOpen, HoldsWhatItsSourceHolds) {
  const auto copy = OpenCheckpoint(fs_, Root(), {.tag = "native5"});
  ExpectSameTensors(*source_, *copy);
  ExpectSameRun(source_->info(), copy->info());
}

TEST_F(NativeOpen, ARootMayMixFormats) {
  const RootListing listing = ListTags(fs_, Root());
  ASSERT_EQ(listing.tags.size(), 2U);
  EXPECT_EQ(listing.latest, "step5");
  const TagListing& native = listing.tags[0];
  EXPECT_EQ(native.tag, "native5");
  EXPECT_EQ(native.step, 5);
  EXPECT_EQ(native.stage, 3);
  EXPECT_EQ(native.num_ranks, 3);
  EXPECT_TRUE(native.complete);
  EXPECT_TRUE(native.sizes_proven);
  EXPECT_GT(native.size_bytes, 100'000U);
  EXPECT_GT(native.modified_ns, 0);
  EXPECT_EQ(listing.tags[1].tag, "step5");
}

TEST_F(NativeOpen, VerifyGoesToTheRightFormat) {
  const VerifyReport report = VerifyCheckpoint(fs_, Root(), {.tag = "native5"});
  EXPECT_TRUE(report.whole());
  EXPECT_EQ(report.num_files, 8) << "two of them carried";
  EXPECT_EQ(report.tag, "native5");
}

TEST_F(NativeOpen, AMissingRankFileIsListedAndAnError) {
  const std::string id = SaveIdIn(Root() + "/native5");
  stdfs::remove(Root() + "/native5/rank-00001." + id + ".h5");
  const RootListing listing = ListTags(fs_, Root());
  EXPECT_FALSE(listing.tags.at(0).complete);
  EXPECT_FALSE(listing.tags.at(0).sizes_proven);
  EXPECT_THAT(listing.tags[0].missing.at(0), HasSubstr("rank-00001"));
  try {
    OpenCheckpoint(fs_, Root(), {.tag = "native5"});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr("is missing"));
  }
}

TEST_F(NativeOpen, ADamagedManifestIsNoSilentDeepSpeedTag) {
  const std::string manifest = Root() + "/native5/manifest.json";
  testutil::WriteBytes(manifest, "{}");
  EXPECT_FALSE(VerifyCheckpoint(fs_, Root(), {.tag = "native5"}).whole());
  EXPECT_THROW(OpenCheckpoint(fs_, Root(), {.tag = "native5"}), Error);
  EXPECT_EQ(ListTags(fs_, Root()).tags.size(), 2U);
}

// What a save that died leaves, or a manifest that was deleted.
TEST_F(NativeOpen, ATagWithoutAManifestIsSaidToBeUncommitted) {
  stdfs::remove(Root() + "/native5/manifest.json");
  const RootListing listing = ListTags(fs_, Root());
  ASSERT_EQ(listing.tags.size(), 1U);
  ASSERT_EQ(listing.findings.size(), 1U);
  EXPECT_EQ(listing.findings[0].code, "never_committed");
  EXPECT_EQ(listing.findings[0].severity, Finding::Severity::kWarning);
  EXPECT_EQ(listing.findings[0].place.file, Root() + "/native5");
  for (const std::string by_path : {"", "/native5"}) {
    const std::string tag = by_path.empty() ? "native5" : "";
    const VerifyReport report =
        VerifyCheckpoint(fs_, Root() + by_path, {.tag = tag});
    ASSERT_EQ(report.findings.size(), 1U);
    EXPECT_THAT(report.findings[0].ToString(),
                HasSubstr("native checkpoint without its manifest.json"));
    try {
      OpenCheckpoint(fs_, Root() + by_path, {.tag = tag});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.what(), HasSubstr("never committed"));
    }
  }
  // It is not in the way of tags.
  EXPECT_EQ(OpenCheckpoint(fs_, Root())->info().tag, "step5");
  EXPECT_EQ(ListTags(fs_, Root() + "/native5").root, Root());
}

TEST_F(NativeOpen, ARootOfUncommittedTagsSaysSo) {
  stdfs::remove(Root() + "/native5/manifest.json");
  stdfs::remove_all(Root() + "/step5");
  stdfs::remove(Root() + "/latest");
  for (const std::string& path : {Root(), scratch_.path().string()}) {
    try {
      ListTags(fs_, path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      if (path == Root()) {
        EXPECT_THAT(error.what(), HasSubstr("never committed"));
        EXPECT_THAT(error.what(), HasSubstr("native5"));
      }
    }
  }
}

// A DeepSpeed tag in which a native save died is still a DeepSpeed tag.
TEST_F(NativeOpen, LeftoversInADeepSpeedTagChangeNothing) {
  const std::string id = SaveIdIn(Root() + "/native5");
  stdfs::copy_file(Root() + "/native5/checksums." + id,
                   Root() + "/step5/checksums." + id);
  EXPECT_EQ(OpenCheckpoint(fs_, Root() + "/step5")->info().format, "deepspeed");
  EXPECT_TRUE(ListTags(fs_, Root()).findings.empty());
}

TEST_F(NativeOpen, AForeignManifestMakesNoNativeTag) {
  testutil::WriteBytes(Root() + "/step5/manifest.json", "{\"a\": 1}");
  EXPECT_EQ(OpenCheckpoint(fs_, Root() + "/step5")->info().format, "deepspeed");
}

}  // namespace
}  // namespace muonstore::native
