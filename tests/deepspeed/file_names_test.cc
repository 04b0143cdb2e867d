#include "formats/deepspeed/file_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/deepspeed/tag_directory.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

TEST(FileNamesTest, OptimizerFiles) {
  const auto parsed =
      ParseOptimFileName("bf16_zero_pp_rank_10_mp_rank_00_optim_states.pt");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->rank, 10);
  EXPECT_EQ(parsed->mp_rank, 0);
  EXPECT_TRUE(parsed->bf16);
  EXPECT_FALSE(
      ParseOptimFileName("zero_pp_rank_3_mp_rank_00_optim_states.pt")->bf16);
  for (const char* name :
       {"zero_pp_rank__mp_rank_00_optim_states.pt",
        "zero_pp_rank_-1_mp_rank_00_optim_states.pt",
        "zero_pp_rank_99999999999_mp_rank_00_optim_states.pt",
        "zero_pp_rank_1_mp_rank_00_optim_states.pt.tmp",
        "xzero_pp_rank_1_mp_rank_00_optim_states.pt", ""}) {
    EXPECT_FALSE(ParseOptimFileName(name).has_value()) << name;
  }
}

TEST(FileNamesTest, ModelFiles) {
  EXPECT_FALSE(ParseModelFileName("mp_rank_00_model_states.pt")->rank);
  EXPECT_EQ(
      ParseModelFileName("zero_pp_rank_7_mp_rank_00_model_states.pt")->rank, 7);
  EXPECT_FALSE(
      ParseModelFileName("bf16_zero_pp_rank_7_mp_rank_00_model_states.pt"));
}

TEST(FileNamesTest, MadeNamesAreParsed) {
  for (const bool bf16 : {false, true}) {
    const auto parsed = ParseOptimFileName(MakeOptimFileName(1023, bf16));
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(parsed->rank, 1023);
    EXPECT_EQ(parsed->bf16, bf16);
  }
  EXPECT_EQ(ParseModelFileName(MakeModelFileName(12))->rank, 12);
  EXPECT_TRUE(ParseModelFileName(MakeModelFileName(std::nullopt)).has_value());
}

TEST(FileNamesTest, OtherParallelismIsNamed) {
  EXPECT_EQ(UnsupportedFeatureOf("layer_03-model_00-model_states.pt"),
            "pipeline parallelism");
  EXPECT_EQ(UnsupportedFeatureOf("layer_0_expert_1_mp_rank_00_model_states.pt"),
            "expert parallelism");
  EXPECT_THAT(UnsupportedFeatureOf("mp_rank_01_model_states.pt").value(),
              HasSubstr("tensor parallelism"));
  EXPECT_FALSE(UnsupportedFeatureOf("mp_rank_00_model_states.pt"));
  EXPECT_FALSE(UnsupportedFeatureOf("zero_to_fp32.py"));
}

TEST(TagDirectoryTest, RanksAreOrderedByNumberNotByText) {
  const testutil::Scratch scratch;
  for (const int rank : {10, 2, 0, 1, 9, 8, 7, 6, 5, 4, 3}) {
    testutil::WriteBytes(scratch / MakeOptimFileName(rank, true),
                         std::string(static_cast<size_t>(rank), 'x'));
  }
  testutil::WriteBytes(scratch / "mp_rank_00_model_states.pt", "m");
  testutil::WriteBytes(scratch / "notes.txt", "n");
  const TagDirectory directory =
      ScanTagDirectory(*PosixFileSystem(), scratch.path().string());
  EXPECT_TRUE(directory.problems.empty());
  ASSERT_EQ(directory.num_ranks(), 11);
  for (int rank = 0; rank < 11; ++rank) {
    EXPECT_THAT(directory.optim_files[static_cast<size_t>(rank)],
                EndsWith(MakeOptimFileName(rank, true)));
  }
  EXPECT_THAT(directory.extra_files, ElementsAre("notes.txt"));
  EXPECT_EQ(directory.num_files, 13);
  EXPECT_EQ(directory.size_bytes, 55U + 2U);
}

TEST(TagDirectoryTest, GapsAndDoublesAreProblems) {
  const testutil::Scratch scratch;
  testutil::WriteBytes(scratch / MakeOptimFileName(0, false), "x");
  testutil::WriteBytes(scratch / MakeOptimFileName(2, false), "x");
  testutil::WriteBytes(scratch / MakeOptimFileName(2, true), "x");
  testutil::WriteBytes(scratch / MakeModelFileName(0), "x");
  const TagDirectory directory =
      ScanTagDirectory(*PosixFileSystem(), scratch.path().string());
  std::vector<std::string> texts;
  for (const Error& problem : directory.problems) {
    texts.emplace_back(problem.what());
  }
  EXPECT_THAT(texts, testing::Contains(HasSubstr("two files")));
  EXPECT_THAT(texts,
              testing::Contains(HasSubstr("zero_pp_rank_1_mp_rank_00_optim")));
  EXPECT_THAT(texts,
              testing::Contains(HasSubstr("zero_pp_rank_2_mp_rank_00_model")));
}

}  // namespace
}  // namespace muonstore::deepspeed
