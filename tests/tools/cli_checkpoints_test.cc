// ckpt-inspect on real DeepSpeed checkpoints: the program against golden values
// that were gathered from the live optimizer.
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/inspect/matrices.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/golden.h"
#include "tests/tools/cli.h"
#include "tests/tools/spoilt_copy.h"

namespace muonstore::testutil {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kZero2 = "s2-ws2-bf16-none-base";
constexpr const char* kZero3 = "s3-ws2-bf16-none-base";

// Leaves of nested lists; text stands for NaN and infinities.
void Flatten(const json& value, std::vector<float>& out) {
  if (value.is_array()) {
    for (const json& item : value) Flatten(item, out);
  } else {
    out.push_back(value.is_number() ? value.get<float>() : NAN);
  }
}

// The name of a golden kind, "fp32/blocks.0.w" -> {"fp32", "blocks.0.w"}.
std::pair<std::string, std::string> SplitKey(const std::string& key) {
  const size_t slash = key.find('/');
  return {key.substr(0, slash), key.substr(slash + 1)};
}

class EveryCase : public testing::TestWithParam<DeepSpeedTag> {};

TEST_P(EveryCase, IsDescribedAndVerified) {
  const std::string path = GetParam().path().string();
  const bool elastic = path.find("elastic") != std::string::npos;
  const json summary = InspectJson({"summary", path});
  // "s2-ws4-...": stage and ranks.
  const std::string& name = GetParam().case_name;
  EXPECT_EQ(summary["stage"], std::stoi(name.substr(1)));
  EXPECT_EQ(summary["num_ranks"], std::stoi(name.substr(name.find("ws") + 2)));
  EXPECT_EQ(summary["tag"], GetParam().tag);
  EXPECT_FALSE(summary["state"].empty());
  EXPECT_EQ(Inspect({path}).exit_code, 0);
  EXPECT_EQ(Inspect({"tensors", path}).exit_code, elastic ? 4 : 0);
  const json tensors = InspectJson({"tensors", path, "--allow-loss"});
  EXPECT_FALSE(tensors["tensors"].empty());
  const ProcessResult verify = Inspect({"verify", path});
  EXPECT_EQ(verify.exit_code, elastic ? 1 : 0) << verify.out << verify.err;
}

INSTANTIATE_TEST_SUITE_P(Fixtures, EveryCase,
                         testing::ValuesIn(DeepSpeedTags()),
                         [](const auto& param) {
                           return TestName(param.param.ToString());
                         });

class GoldenCase : public testing::TestWithParam<std::string> {};

TEST_P(GoldenCase, DumpPrintsEveryValue) {
  const DeepSpeedTag tag = TagOf(GetParam(), "ckpt", "step5");
  int num_compared = 0;
  for (const auto& [key, golden] : ReadGolden(tag)) {
    const auto [kind, parameter] = SplitKey(key);
    if (golden.floats.empty() || kind.starts_with("final")) continue;
    const json dump = InspectJson(
        {"dump", tag.path().string(), "--param", parameter, "--state", kind});
    EXPECT_EQ(dump["shape"], golden.shape) << key;
    std::vector<float> values;
    Flatten(dump["values"], values);
    ASSERT_EQ(values.size(), golden.floats.size()) << key;
    EXPECT_EQ(std::memcmp(values.data(), golden.floats.data(),
                          values.size() * sizeof(float)),
              0)
        << key;
    ++num_compared;
  }
  EXPECT_GT(num_compared, 20);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenCase,
                         testing::Values(kZero2, kZero3,
                                         "s2-ws4-bf16-none-base"),
                         [](const auto& param) {
                           return TestName(param.param);
                         });

TEST(Summary, ShowsTheRun) {
  const ProcessResult result = Inspect({CheckpointRoot(kZero2)});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
  for (const char* part :
       {"DeepSpeed 0.19.8", "ZeRO stage 2, 2 ranks", "muon-params", "lr 0.02",
        "mu 0.95", "10,075", "momentum"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
}

TEST(List, NamesTheLatest) {
  const json list =
      InspectJson({"list", CheckpointRoot("s2-ws2-bf16-none-twotags")});
  ASSERT_EQ(list["tags"].size(), 2U);
  EXPECT_EQ(list["latest"], "step8");
  EXPECT_EQ(list["tags"][0]["tag"], "step5");
  EXPECT_EQ(list["tags"][0]["is_latest"], false);
  EXPECT_EQ(list["tags"][1]["is_latest"], true);
  EXPECT_EQ(list["tags"][1]["complete"], true);
}

TEST(Tags, ExactlyTheOneThatWasAskedFor) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-twotags");
  EXPECT_EQ(InspectJson({"summary", root})["tag"], "step8");
  EXPECT_EQ(InspectJson({"summary", root, "--tag", "step5"})["tag"], "step5");
  const ProcessResult unknown = Inspect({"summary", root, "--tag", "step6"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("step5"), HasSubstr("step8")));
}

TEST(Tensors, RanksAsRanges) {
  const json tensors =
      InspectJson({"tensors", CheckpointRoot(kZero2), "--state",
                   "momentum_buffer", "--param", "blocks.1.*"});
  EXPECT_EQ(tensors["tensors"].size(), 4U);
  for (const json& tensor : tensors["tensors"]) {
    EXPECT_EQ(tensor["state"], "momentum");
    EXPECT_EQ(tensor["group"], "muon-params");
    if (tensor["parameter"] == "blocks.1.fc1.weight") {
      EXPECT_EQ(tensor["ranks"], (json{0, 1}));
    }
  }
  EXPECT_THAT(Inspect({"tensors", CheckpointRoot(kZero2)}).out,
              HasSubstr("  0-1  "));
}

TEST(Tensors, NothingThatMatchesNamesWhatThereIs) {
  const std::string root = CheckpointRoot(kZero2);
  const ProcessResult state = Inspect({"tensors", root, "--state", "exp"});
  EXPECT_EQ(state.exit_code, 2);
  EXPECT_THAT(state.err, HasSubstr("'exp_avg_sq'"));
  const ProcessResult name = Inspect({"tensors", root, "--param", "od.weight"});
  EXPECT_EQ(name.exit_code, 2);
  EXPECT_THAT(name.err, HasSubstr("did you mean 'odd.weight'"));
}

TEST(Stats, AgreesWithGoldenValuesPerHead) {
  const DeepSpeedTag tag = TagOf(kZero2, "ckpt", "step5");
  const Golden golden = ReadGolden(tag);
  const std::string name = "blocks.0.attn.qkv.weight";
  const GoldenTensor& momentum = golden.at("momentum_buffer/" + name);
  const json stats = InspectJson(
      {"stats", tag.path().string(), "--param", name, "--split", "24,24,24"});
  ASSERT_EQ(stats["matrices"].size(), 3U);
  for (const json& matrix : stats["matrices"]) {
    const size_t first = matrix["matrix"].get<size_t>() * 24 * 24;
    const std::vector<float> part(
        momentum.floats.begin() + static_cast<std::ptrdiff_t>(first),
        momentum.floats.begin() + static_cast<std::ptrdiff_t>(first + 24 * 24));
    double squares = 0;
    for (const float value : part) {
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double sigma = JacobiSingularValues(part, 24, 24)[0];
    const json& got = matrix["stats"];
    EXPECT_NEAR(got["frobenius"].get<double>(), std::sqrt(squares), 1e-12);
    EXPECT_NEAR(got["singular_values"][0].get<double>(), sigma, 1e-8 * sigma);
    EXPECT_NEAR(got["stable_rank"].get<double>(), squares / (sigma * sigma),
                1e-6);
  }
}

TEST(Stats, ALayoutThatDoesNotFitNamesShapeAndSizes) {
  const ProcessResult result =
      Inspect({"stats", CheckpointRoot(kZero2), "--param", "odd.weight",
               "--split", "3,3"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("odd.weight"), HasSubstr("[7, 13]")));
}

TEST(Stats, IdenticalToThePreviousTag) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-twotags");
  EXPECT_EQ(Inspect({"momentum", root, "--vs", root, "--vs-tag", "step5",
                     "--fail-on", "identical"})
                .exit_code,
            0);
  const json same = InspectJson(
      {"momentum", root, "--vs", root, "--fail-on", "identical"}, 1);
  EXPECT_EQ(same["flagged"]["identical"], same["matrices"].size());
  EXPECT_EQ(Inspect({"momentum", root, "--vs", root}).exit_code, 0);
}

TEST(Stats, MomentumThatWasNeverStoredIsAFinding) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-cpu-v0176");
  const json momentum = InspectJson({"momentum", root}, 1);
  EXPECT_EQ(momentum["finding"]["code"], "momentum_missing");
  EXPECT_TRUE(momentum["matrices"].empty());
}

TEST(Stats, LostElementsTakeAllowLoss) {
  const std::string root = CheckpointRoot("s1-ws2-bf16-none-elastic");
  const ProcessResult refused = Inspect({"momentum", root});
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.err,
              AllOf(HasSubstr("odd.weight"), HasSubstr("--allow-loss")));
  const json taken = InspectJson({"momentum", root, "--allow-loss"});
  EXPECT_EQ(taken["flagged"]["missing"], 1);
  EXPECT_EQ(taken["matrices"][0]["parameter"], "odd.weight");
  EXPECT_EQ(Inspect({"momentum", root, "--allow-loss", "--fail-on", "missing"})
                .exit_code,
            1);
}

TEST(Diff, TheSameStateInAnotherContainer) {
  // Sub-groups of another size; another stage with the same arithmetic.
  const std::vector<std::pair<const char*, const char*>> pairs = {
      {kZero3, "s3-ws2-bf16-none-subgroup"}, {kZero2, "s1-ws2-bf16-none-base"}};
  for (const auto& [a, b] : pairs) {
    const json diff =
        InspectJson({"diff", CheckpointRoot(a), CheckpointRoot(b)});
    EXPECT_EQ(diff["same_state"], true);
    EXPECT_GT(diff["counts"]["equal"], 60);
  }
}

TEST(Diff, ResavedMomentumIsEqualUpToDType) {
  const fs::path folder = FindDeepSpeedCase(kZero2).folder;
  const json diff = InspectJson(
      {"diff", (folder / "ckpt").string(), (folder / "ckpt_resaved").string()});
  EXPECT_EQ(diff["same_state"], true);
  EXPECT_EQ(diff["counts"]["equal up to dtype"], 9);
  EXPECT_EQ(diff["notes"]["equal after widening bf16 to f32"], 9);
}

TEST(Diff, TagsOfOneRootDiffer) {
  const std::string root = CheckpointRoot("s2-ws2-bf16-none-twotags");
  const ProcessResult result =
      Inspect({"diff", root, root, "--tag-a", "step5", "--tag-b", "step8"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(
      result.out,
      AllOf(HasSubstr("DIFFERENT state"), HasSubstr("different step: 5 | 8"),
            HasSubstr("different counter global_steps: 5 | 8")));
  EXPECT_EQ(Inspect({"diff", root, root}).exit_code, 0);
}

TEST(Diff, StagesThatComputedOtherwise) {
  const json diff =
      InspectJson({"diff", CheckpointRoot(kZero2), CheckpointRoot(kZero3)}, 1);
  EXPECT_EQ(diff["same_state"], false);
  EXPECT_EQ(diff["tensors"].size(), 20U);
  EXPECT_EQ(InspectJson({"diff", CheckpointRoot(kZero2), CheckpointRoot(kZero3),
                         "--state", "master", "--atol", "0.1"})["same_state"],
            true);
}

TEST(Dump, RowsToANpyFile) {
  const DeepSpeedTag tag = TagOf(kZero3, "ckpt", "step5");
  const fs::path path = fs::path(testing::TempDir()) / "cli_dump.npy";
  fs::remove(path);
  const ProcessResult result =
      Inspect({"dump", tag.path().string(), "--param", "odd.weight", "--state",
               "momentum", "--rows", "2:5", "-o", path.string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[3, 13] <f4"), HasSubstr("widened from bf16")));
  std::ifstream in(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), {});
  ASSERT_EQ(file.size(), 128 + 3 * 13 * sizeof(float));
  EXPECT_THAT(file, HasSubstr("'shape': (3, 13)"));
  const auto values = ReadGolden(tag);
  const auto& golden = values.at("momentum_buffer/odd.weight");
  EXPECT_EQ(std::memcmp(file.data() + 128, golden.floats.data() + 2 * 13,
                        3 * 13 * sizeof(float)),
            0);
  fs::remove(path);
}

TEST(Dump, WritesNothingWhenItFails) {
  const fs::path folder = fs::path(testing::TempDir()) / "cli_dump_fails";
  fs::remove_all(folder);
  fs::create_directories(folder);
  const std::string out = (folder / "out.npy").string();
  EXPECT_EQ(Inspect({"dump", CheckpointRoot(kZero3), "--param", "odd.weight",
                     "--state", "momentum", "--rows", "5:9", "-o", out})
                .exit_code,
            2);
  EXPECT_EQ(Inspect({"dump", CheckpointRoot(kZero3), "--param", "odd.weight",
                     "--state", "momentum", "-o", out + "/no/x.npy"})
                .exit_code,
            3);
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
}

TEST(SingleFiles, AreCheckpointsOfTheirOwn) {
  const std::string path = FixturePath("torchfiles/plain.pt").string();
  const json tensors = InspectJson({"tensors", path});
  ASSERT_EQ(tensors["tensors"].size(), 1U);
  EXPECT_EQ(tensors["tensors"][0]["shape"], (json{6, 8}));
  EXPECT_EQ(Inspect({path}).exit_code, 0);
  EXPECT_EQ(Inspect({"stats", path, "--state", "weight"}).exit_code, 0);
}

}  // namespace
}  // namespace muonstore::testutil
