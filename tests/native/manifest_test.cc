// The manifest: what it says comes back, and what it must not say is refused.
#include "formats/native/manifest.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/native/block_table.h"
#include "formats/native/layout.h"
#include "formats/native/plan_manifest.h"
#include "src/base/str.h"
#include "tests/native/check_manifest.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using testing::HasSubstr;

Manifest SmallManifest() {
  const auto source = SmallCheckpoint();
  Manifest manifest =
      PlanManifest(*source, LayoutOf(*source, {.stage = 2, .num_ranks = 2}))
          .manifest;
  manifest.save_id = "0123456789abcdef";
  manifest.view_omitted = "a test";
  return manifest;
}

// The error of a manifest in which `from` became `to`, signed again.
Error ErrorOf(const std::string& from, const std::string& to) {
  std::string text = WriteManifest(SmallManifest());
  const size_t at = text.find(from);
  if (at == text.npos) {
    ADD_FAILURE() << "not in the manifest: " << from;
  } else {
    text.replace(at, from.size(), to);
  }
  try {
    const Layout layout(ParseManifest(Sign(text)));
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << to;
  return {ErrorCode::kInternal, ""};
}

TEST(NativeManifest, RandomOnesComeBack) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const auto source = RandomCheckpoint(random);
    Manifest manifest =
        PlanManifest(*source, LayoutOf(*source, RandomRule(random))).manifest;
    manifest.save_id = "0123456789abcdef";
    manifest.carried.resize(2);
    manifest.view = FileDigest{.size_bytes = 1, .digest = 2};
    EXPECT_TRUE(CheckManifest(WriteManifest(manifest)));
  }
}

TEST(NativeManifest, AnyChangedByteIsDataLoss) {
  const std::string text = WriteManifest(SmallManifest());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] ^ 0x20);
    try {
      ParseManifest(changed);
      ADD_FAILURE() << "byte " << i;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    }
  }
}

TEST(NativeManifest, ALaterVersionIsUnsupported) {
  const Error error = ErrorOf("\"version\":1", "\"version\":4");
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error.what(), HasSubstr("update"));
}

TEST(NativeManifest, LayoutsMakeItVersionTwo) {
  Manifest manifest = SmallManifest();
  EXPECT_THAT(WriteManifest(manifest), HasSubstr("\"version\":1,"));
  manifest.info.matrix_layouts = {{"a", "per_head[4]"},
                                  {"b%/", "packed_rows[1,2]"}};
  const std::string text = WriteManifest(manifest);
  EXPECT_THAT(text, HasSubstr("\"version\":2,"));
  EXPECT_EQ(ParseManifest(text).info.matrix_layouts,
            manifest.info.matrix_layouts);
  manifest.info.matrix_layouts["a"] = "per_head[four]";
  EXPECT_THROW(ParseManifest(WriteManifest(manifest)), Error);
}

TEST(NativeManifest, WholeRowsMakeItVersionThree) {
  Manifest manifest = SmallManifest();
  EXPECT_FALSE(ParseManifest(WriteManifest(manifest)).rule.whole_rows);
  manifest.rule.stage = 3;
  manifest.rule.whole_rows = true;
  const std::string text = WriteManifest(manifest);
  EXPECT_THAT(text, HasSubstr("\"version\":3,"));
  EXPECT_TRUE(ParseManifest(text).rule.whole_rows);
}

TEST(NativeManifest, FrozenParametersMayBeListed) {
  Manifest manifest = SmallManifest();
  manifest.parameters.push_back({.name = "listed",
                                 .shape = Shape({2, 2}),
                                 .optimizer = Optimizer::kNone});
  const Manifest read = ParseManifest(WriteManifest(manifest));
  EXPECT_NO_THROW(Layout{read});
}

struct Contradiction {
  const char* from;
  const char* to;
  const char* message;
};

TEST(NativeManifest, ContradictionsAreDataLossAndSayWhat) {
  const Contradiction cases[] = {
      {"muonstore native", "another native", "format"},
      {"\"version\":1", "\"version\":0", "version"},
      {"\"version\":1", "\"version\":\"1\"", "version"},
      {"\"version\":1", "\"version\":1,\"extra\":1", "unknown fields"},
      {"\"source\":", "\"Source\":", "lacks source"},
      {"0123456789abcdef", "0123456789ABCDEF", "save_id"},
      {"\"none\"", "\"gzip\"", "compression"},
      {"\"block_bytes\":4194304", "\"block_bytes\":4095", "block_bytes"},
      {"\"block_bytes\":4194304", "\"block_bytes\":6000", "block_bytes"},
      {"\"block_bytes\":4194304", "\"block_bytes\":9999999999", "block_bytes"},
      {"\"shape\":[7,9]", "\"shape\":[7,-9]", "shape"},
      {"\"shape\":[7,9]", "\"shape\":[7,99999999999999999999]", "shape"},
      {"\"shape\":[7,9]", "\"shape\":[4294967296,4294967296]", ""},
      {"\"shape\":[2]", "\"shape\":[3]", "another's"},
      {"\"dtype\":\"f32\"", "\"dtype\":\"float32\"", "dtype"},
      {"[3,4],\"dtype\":\"f32\"", "[3,4],\"dtype\":\"f64\"", "another's"},
      {"\"stage\":2,\"num_ranks\":2,\"muon",
       "\"stage\":4,\"num_ranks\":2,\"muon", "stage"},
      {"\"stage\":2,\"num_ranks\":2,\"muon",
       "\"stage\":2,\"num_ranks\":3,\"muon", "rank files"},
      {"\"parameters\":[1", "\"parameters\":[7", "does not exist"},
      {"\"parameters\":[1", "\"parameters\":[1,1", ""},
      {"\"partition_elements\":", "\"partition_elements\":9", "partition"},
      {"\"flat_group\":0", "\"flat_group\":1", "flat group"},
      {"\"flat_group\":0", "\"flat_groop\":0", "rank"},
      {"\"rank\":1", "\"rank\":2", "lies on rank 2"},
      {"\"rank\":1", "\"rank\":0", "number of segments"},
      {"\n[1,0],", "\n[0,0],", "twice"},
      {"\n[1,0],", "\n[3,0],", "tensors"},
      {"\n[1,0],", "\n[1,4],", "tensors"},
      {"\n[1,0],", "\n[1,2],", "another's"},
      {"\n[1,0],", "\n[1],", "tensors"},
      {"\"slot\":3}", "\"slot\":99}", "no such segment"},
      {"\"slot\":3}", "\"slot\":-1}", "no such segment"},
      {"\"slot\":3}", "\"slot\":2}", "another's"},
      {"\"slot\":3}", "\"slot\":3,\"parameter\":0}", "unknown fields"},
      {"\"slot\":3}", "\"slot\":3,\"derived\":true}", "another's"},
      {"\"slot\":3}", "\"slot\":3,\"missing\":[[1,0]]}", "missing elements"},
      {"\"slot\":3}", "\"slot\":3,\"missing\":[[0,3]]}", "missing elements"},
      {"\"slot\":3}", "\"slot\":3,\"missing\":[[1]]}", "missing"},
      {"\"group\":-1,\"optimizer\":\"none\",\"slot\"",
       "\"group\":5,\"optimizer\":\"none\",\"slot\"", "no such param group"},
      {"\"segment_offsets\":[", "\"segment_offsets\":[1,", "segments"},
      {"\"num_elements\":12,", "\"num_elements\":13,", "another's"},
      {"\"num_elements\":12,", "\"num_elements\":0,", "num_elements"},
      {"{\n\"format\"",
       "{\n\"a\":[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]],\"format\"", "too deep"},
      {"{\n\"format\"", "{\n,\"format\"", "no JSON"},
      {"{\n\"format\"", "{\n\"format\":\"\",\"format\"", "format twice"},
      {"\"run\":{\"step\":1", "\"run\":{\"step\":-1", "step"},
      {"\"optimizer\":\"muon\",\"step\":null",
       "\"optimizer\":\"muon\",\"step\":-7", "step"},
      {"\"stage\":2,\"num_ranks\":2,\"opt", "\"stage\":2,\"num_ranks\":5,\"opt",
       "run and rule"},
      {"\"stage\":2,\"num_ranks\":2,\"opt", "\"stage\":1,\"num_ranks\":2,\"opt",
       "run and rule"},
      {"\"optimizer\":\"muon\",\"weight_dtype\"",
       "\"optimizer\":\"adam\",\"weight_dtype\"", "optimizer is not"},
      {"\"group\":0,\"optimizer\":\"muon\",\"weight_dtype\"",
       "\"group\":1,\"optimizer\":\"adam\",\"weight_dtype\"", "flat group"},
      {"\"group\":0,\"optimizer\":\"muon\",\"weight_dtype\"",
       "\"group\":9,\"optimizer\":\"muon\",\"weight_dtype\"", "flat group"},
      {"\"name\":\"a\"", "\"name\":\"%zz\"", "name"},
  };
  for (const Contradiction& one : cases) {
    SCOPED_TRACE(StrCat(one.from, " -> ", one.to));
    const Error error = ErrorOf(one.from, one.to);
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(one.message));
  }
}

TEST(NativeManifest, HugeSegmentsAreRefusedBeforeMemoryIsTaken) {
  Manifest manifest = SmallManifest();
  constexpr int64_t kHuge = int64_t{1} << 60;
  manifest.slots.back().num_elements = kHuge;
  for (ManifestTensor& entry : manifest.tensors) {
    if (entry.slot == static_cast<int32_t>(manifest.slots.size()) - 1) {
      entry.tensor.shape = Shape({kHuge});
    }
  }
  const Manifest parsed = ParseManifest(WriteManifest(manifest));
  const Layout layout(parsed);
  EXPECT_THROW(BlockTable::FileBytes(layout, kPageBytes), Error);
}

std::vector<std::string> Corpus() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(
           testutil::RepositoryData().parent_path() / "native/corpus")) {
    texts.push_back(testutil::ReadBytes(entry.path()));
  }
  return texts;
}

TEST(NativeManifestCorpus, RunsAndMostlyParses) {
  int num_sound = 0;
  for (const std::string& text : Corpus()) {
    num_sound += CheckManifest(text) ? 1 : 0;
  }
  EXPECT_GE(num_sound, 4);
}

// Numbers, strings and punctuation: where each begins, and its length.
std::vector<std::pair<size_t, size_t>> Tokens(const std::string& text) {
  std::vector<std::pair<size_t, size_t>> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t end = at + 1;
    if (text[at] == '"') {
      end = std::min(text.find('"', end), text.size() - 1) + 1;
    } else if (text[at] == '-' || std::isdigit(text[at]) != 0) {
      end = std::min(text.find_first_not_of("0123456789", end), text.size());
    }
    if (std::isspace(text[at]) == 0) tokens.emplace_back(at, end - at);
    at = end;
  }
  return tokens;
}

// Text that is nearly right reaches deeper than bytes that are not.
std::string MutateTokens(const std::string& text, std::mt19937& random) {
  const std::vector<std::pair<size_t, size_t>> tokens = Tokens(text);
  const auto& [at, size] = tokens[random() % tokens.size()];
  const auto& [other_at, other_size] = tokens[random() % tokens.size()];
  constexpr const char* kValues[] = {"0",
                                     "1",
                                     "-1",
                                     "2147483647",
                                     "4294967296",
                                     "9223372036854775807",
                                     "18446744073709551615",
                                     "1.5",
                                     "null",
                                     "[]",
                                     "{}",
                                     "\"\"",
                                     "true"};
  std::string mutated = text;
  switch (random() % 3) {
    case 0:
      mutated.replace(at, size, kValues[random() % std::size(kValues)]);
      break;
    case 1:
      mutated.replace(at, size, text.substr(other_at, other_size));
      break;
    default:
      mutated.erase(at, size);
      break;
  }
  return mutated;
}

TEST(NativeManifestCorpus, MutationsWithARightDigestNeverCrash) {
  std::mt19937 random(11);
  for (const std::string& text : Corpus()) {
    for (int i = 0; i < 600; ++i) {
      CheckManifest(MutateTokens(text, random));
    }
  }
}

}  // namespace
}  // namespace muonstore::native
