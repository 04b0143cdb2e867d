// Damaged, incomplete and mixed checkpoints: a typed error or a line of verify
// that names file and tensor, and never a wrong value.

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/list.h"
#include "formats/deepspeed/verify.h"
#include "muonstore/file_system.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testutil::ReadBytes;
using testutil::Scratch;
using testutil::WriteBytes;

constexpr const char* kRank0 = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt";
constexpr const char* kRank1 = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt";

fs::path CaseTag(const Scratch& scratch, const std::string& name,
                 const std::string& tag = "step5",
                 const std::string& as = "copy") {
  return scratch.Copy(testutil::FindDeepSpeedCase(name).folder / "ckpt" / tag,
                      as);
}

std::vector<Finding> Faults(const fs::path& tag, bool quick = false) {
  std::vector<Finding> faults;
  const VerifyReport report =
      VerifyTag(PosixFileSystem(), tag.string(), {.quick = quick});
  std::copy_if(report.findings.begin(), report.findings.end(),
               std::back_inserter(faults), [](const Finding& finding) {
                 return finding.severity == Finding::Severity::kFault;
               });
  return faults;
}

std::string AllText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += finding.code + ": " + finding.ToString() + "\n";
  }
  return text;
}

// The error that opening gives; fails the test if it opens.
Error OpenError(const fs::path& tag) {
  try {
    DeepSpeedCheckpoint::Open(PosixFileSystem(), tag.string(), {});
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << tag << " was opened";
  return Error(ErrorCode::kInternal, "");
}

TEST(DamageTest, MissingRankIsNamed) {
  for (const char* name : {"s2-ws2-bf16-none-base", "s3-ws2-bf16-none-base",
                           "s2-ws11-bf16-none-ws11"}) {
    for (const char* file : {kRank0, kRank1}) {
      const Scratch scratch;
      const fs::path tag = CaseTag(scratch, name);
      fs::remove(tag / file);
      const Error error = OpenError(tag);
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
      EXPECT_THAT(error.what(), HasSubstr("missing")) << name;
      EXPECT_THAT(AllText(Faults(tag, /*quick=*/true)), HasSubstr(file));
    }
  }
}

TEST(DamageTest, MissingLastRankIsFoundByTheWorldSize) {
  const Scratch scratch;
  const fs::path tag = CaseTag(scratch, "s2-ws2-bf16-none-base");
  fs::remove(tag / kRank1);
  EXPECT_THAT(OpenError(tag).what(), HasSubstr("dp_world_size 2"));
}

// Not also that the ranks that are there belong to another run.
TEST(DamageTest, MissingLastRanksAreOneFault) {
  for (const char* name : {"s2-ws4-bf16-none-base", "s1-ws4-bf16-cpu-base",
                           "s2-ws11-bf16-none-ws11"}) {
    const Scratch scratch;
    const fs::path tag = CaseTag(scratch, name);
    int last = name[5] == '4' ? 3 : 10;
    for (int missing = 1; missing <= 2; ++missing, --last) {
      const std::string file = "bf16_zero_pp_rank_" + std::to_string(last) +
                               "_mp_rank_00_optim_states.pt";
      fs::remove(tag / file);
      const std::vector<Finding> faults = Faults(tag);
      ASSERT_EQ(faults.size(), 1U) << AllText(faults);
      EXPECT_THAT(faults[0].ToString(), HasSubstr(file));
      EXPECT_THAT(OpenError(tag).what(), HasSubstr(file));
      const TagListing listing = ListTag(PosixFileSystem(), tag.string());
      ASSERT_EQ(listing.missing.size(), 1U);
      EXPECT_THAT(listing.missing[0], HasSubstr(file));
      EXPECT_EQ(listing.num_ranks, last + missing);
    }
  }
}

TEST(DamageTest, CutRankFilesAreListedByTheirSizes) {
  for (const char* name : {"s2-ws2-bf16-none-base", "s2-ws4-bf16-none-base",
                           "s3-ws2-bf16-none-base", "s3-ws4-bf16-cpu-base",
                           "s1-ws2-bf16-none-gacc32"}) {
    const Scratch scratch;
    const fs::path tag = CaseTag(scratch, name);
    const auto whole_bytes = fs::file_size(tag / kRank1);
    for (const auto bytes :
         {whole_bytes * 2 / 5, whole_bytes / 10, uintmax_t{63}, uintmax_t{0}}) {
      fs::resize_file(tag / kRank1, bytes);
      const TagListing listing = ListTag(PosixFileSystem(), tag.string());
      EXPECT_FALSE(listing.complete) << name << " of " << bytes;
      ASSERT_EQ(listing.missing.size(), 1U);
      EXPECT_THAT(listing.missing[0], HasSubstr(kRank1));
      EXPECT_THAT(listing.missing[0], HasSubstr("shorter"));
    }
  }
}

TEST(DamageTest, AnEmptyModelFileOfAnotherRankIsListed) {
  const Scratch scratch;
  const fs::path tag = CaseTag(scratch, "s3-ws2-bf16-none-base");
  fs::resize_file(tag / "zero_pp_rank_1_mp_rank_00_model_states.pt", 0);
  EXPECT_FALSE(ListTag(PosixFileSystem(), tag.string()).complete);
}

TEST(DamageTest, NoWholeRankIsTooShort) {
  for (const testutil::DeepSpeedTag& tag : testutil::DeepSpeedTags()) {
    const TagListing listing = ListTag(PosixFileSystem(), tag.path().string());
    for (const std::string& missing : listing.missing) {
      EXPECT_EQ(missing.find("shorter"), std::string::npos) << missing;
    }
    // What passes may still be cut a little.
    EXPECT_FALSE(listing.sizes_proven);
  }
}

TEST(DamageTest, MissingModelFileIsNamed) {
  const Scratch scratch;
  const fs::path tag = CaseTag(scratch, "s2-ws2-bf16-none-base");
  fs::remove(tag / "mp_rank_00_model_states.pt");
  EXPECT_THAT(OpenError(tag).what(), HasSubstr("mp_rank_00_model_states.pt"));
  EXPECT_FALSE(Faults(tag).empty());
}

TEST(DamageTest, DoubledRankIsFoundHoweverItWasMade) {
  for (const char* name : {"s1-ws2-bf16-none-base", "s2-ws2-bf16-none-base",
                           "s3-ws2-bf16-none-base", "s3-ws4-bf16-cpu-base"}) {
    const Scratch scratch;
    const fs::path tag = CaseTag(scratch, name);
    fs::remove(tag / kRank1);
    fs::copy_file(tag / kRank0, tag / kRank1);
    EXPECT_THAT(OpenError(tag).what(), HasSubstr(kRank1)) << name;
    EXPECT_THAT(AllText(Faults(tag)), HasSubstr("rank 0")) << name;
  }
  const Scratch scratch;
  const fs::path tag = CaseTag(scratch, "s2-ws2-bf16-none-base");
  fs::copy_file(tag / kRank1,
                tag / "zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_THAT(OpenError(tag).what(), HasSubstr("two files"));
}

TEST(DamageTest, RanksOfTwoSavesAreToldApart) {
  const Scratch scratch;
  const fs::path tag =
      CaseTag(scratch, "s2-ws2-bf16-none-twotags", "step5", "old");
  const fs::path later =
      CaseTag(scratch, "s2-ws2-bf16-none-twotags", "step8", "new");
  fs::copy_file(later / kRank1, tag / kRank1,
                fs::copy_options::overwrite_existing);
  const Error error = OpenError(tag);
  EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error.what(), HasSubstr("different saves"));
  EXPECT_THAT(error.what(), HasSubstr(kRank1));
}

TEST(DamageTest, AModelFileOfAnotherSaveShowsInTheWeights) {
  const Scratch scratch;
  const fs::path tag =
      CaseTag(scratch, "s2-ws2-bf16-none-twotags", "step5", "old");
  const fs::path later =
      CaseTag(scratch, "s2-ws2-bf16-none-twotags", "step8", "new");
  fs::copy_file(later / "mp_rank_00_model_states.pt",
                tag / "mp_rank_00_model_states.pt",
                fs::copy_options::overwrite_existing);
  const std::string text = AllText(Faults(tag));
  EXPECT_THAT(text, HasSubstr("weights_differ"));
  EXPECT_THAT(text, HasSubstr("blocks.0.attn.qkv.weight/weight"));
}

TEST(DamageTest, AFlippedPayloadBitIsFoundAndTheTensorNamed) {
  const Scratch scratch;
  const fs::path source = CaseTag(scratch, "s2-ws2-bf16-none-base");
  const std::string bytes = ReadBytes(source / kRank1);
  // Spread over the whole file: payloads, pickle, headers, directory.
  size_t payload_faults = 0;
  for (size_t i = 0; i < 200; ++i) {
    const size_t at = bytes.size() * i / 200;
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ (1 << (i % 8)));
    WriteBytes(source / kRank1, changed);
    const std::vector<Finding> faults = Faults(source);
    const std::string text = AllText(faults);
    // Names and times of the container are not state: a flip there may pass.
    if (text.find("checksum") != std::string::npos) {
      EXPECT_THAT(text, HasSubstr(kRank1));
      EXPECT_THAT(text,
                  testing::AnyOf(HasSubstr("/momentum"), HasSubstr("/master"),
                                 HasSubstr("/exp_avg"), HasSubstr("record")))
          << at;
      ++payload_faults;
    }
  }
  EXPECT_GT(payload_faults, 150U);
}

TEST(DamageTest, TruncationAtEverySixtyFourthIsAnError) {
  for (const char* file : {kRank1, "mp_rank_00_model_states.pt"}) {
    const Scratch scratch;
    const fs::path tag = CaseTag(scratch, "s2-ws2-bf16-none-base");
    const std::string bytes = ReadBytes(tag / file);
    for (size_t i = 0; i < 64; ++i) {
      WriteBytes(tag / file,
                 std::string_view(bytes).substr(0, bytes.size() * i / 64));
      const Error error = OpenError(tag);
      EXPECT_TRUE(error.code() == ErrorCode::kDataLoss ||
                  error.code() == ErrorCode::kUnsupported)
          << i << " " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(file)) << i;
      EXPECT_THAT(AllText(Faults(tag)), HasSubstr(file)) << i;
    }
  }
}

TEST(DamageTest, SwapFilesThatAreMissingOrShortAreNamed) {
  const Scratch scratch;
  const fs::path tag = CaseTag(scratch, "s3-ws2-bf16-nvme-swapall");
  const fs::path swap =
      tag / "offloaded_tensors/rank01/momentum_buffer-3_13.tensor.swp";
  const std::string bytes = ReadBytes(swap);
  WriteBytes(swap, std::string_view(bytes).substr(0, 4096));
  EXPECT_THAT(OpenError(tag).what(), HasSubstr("momentum_buffer-3_13"));
  fs::remove(swap);
  EXPECT_THAT(OpenError(tag).what(), HasSubstr("rank 1"));
  EXPECT_THAT(AllText(Faults(tag, /*quick=*/true)),
              HasSubstr("momentum_buffer-3_13"));
  fs::remove_all(tag / "offloaded_tensors");
  EXPECT_THAT(OpenError(tag).what(), HasSubstr("swap file is missing"));
}

TEST(DamageTest, EveryFaultIsListed) {
  const Scratch scratch;
  const fs::path tag = CaseTag(scratch, "s2-ws11-bf16-none-ws11");
  const auto name = [](int rank) {
    return "bf16_zero_pp_rank_" + std::to_string(rank) +
           "_mp_rank_00_optim_states.pt";
  };
  fs::remove(tag / name(3));
  WriteBytes(tag / name(5), "not a checkpoint");
  std::string bytes = ReadBytes(tag / name(10));
  bytes.resize(bytes.size() / 2);
  WriteBytes(tag / name(10), bytes);
  const std::string text = AllText(Faults(tag));
  EXPECT_THAT(text, HasSubstr(name(3)));
  EXPECT_THAT(text, HasSubstr(name(5)));
  EXPECT_THAT(text, HasSubstr(name(10)));
}

TEST(DamageTest, FilesOfOtherParallelismAreUnsupportedByName) {
  for (const char* name :
       {"layer_00-model_states.pt",
        "layer_1_expert_3_mp_rank_00_model_states.pt",
        "expp_rank_0_mp_rank_00_optim_states.pt", "mp_rank_01_model_states.pt",
        "bf16_zero_pp_rank_0_mp_rank_01_optim_states.pt"}) {
    const Scratch scratch;
    const fs::path tag = CaseTag(scratch, "s2-ws2-bf16-none-base");
    WriteBytes(tag / name, "x");
    const Error error = OpenError(tag);
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << name;
    EXPECT_THAT(error.what(), HasSubstr(name));
  }
}

TEST(DamageTest, WholeFixturesHaveNoFault) {
  for (const testutil::DeepSpeedTag& tag : testutil::DeepSpeedTags()) {
    const std::vector<Finding> faults = Faults(tag.path());
    if (tag.case_name.find("elastic") != std::string::npos) {
      ASSERT_EQ(faults.size(), 1U) << AllText(faults);
      EXPECT_EQ(faults[0].code, "missing_elements");
    } else {
      EXPECT_TRUE(faults.empty()) << tag.ToString() << "\n" << AllText(faults);
    }
  }
}

}  // namespace
}  // namespace muonstore::deepspeed
