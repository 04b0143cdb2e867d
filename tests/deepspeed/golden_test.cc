// The logical state of every DeepSpeed fixture against the values that the live
// optimizer held, bit for bit.

#include "tests/testutil/golden.h"

#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"
#include "tests/testutil/fixtures.h"

namespace muonstore::deepspeed {
namespace {

using testutil::DeepSpeedTag;
using testutil::Golden;
using testutil::GoldenTensor;

std::unique_ptr<DeepSpeedCheckpoint> OpenTag(const DeepSpeedTag& tag,
                                             const ReadOptions& options = {}) {
  return DeepSpeedCheckpoint::Open(PosixFileSystem(), tag.path().string(),
                                   options);
}

bool IsElastic(const DeepSpeedTag& tag) {
  return tag.case_name.find("elastic") != std::string::npos;
}

// Golden step values by parameter, state by our kind names.
struct Expected {
  std::map<TensorKey, const GoldenTensor*> tensors;
  std::map<std::string, double> steps;
};

Expected Arrange(const Golden& golden) {
  Expected expected;
  for (const auto& [key, tensor] : golden) {
    const size_t slash = key.find('/');
    const std::string kind = key.substr(0, slash);
    const std::string name = key.substr(slash + 1);
    if (kind == "step") {
      expected.steps[name] = tensor.doubles.at(0);
    } else {
      expected.tensors[{name, CanonicalStateKind(kind)}] = &tensor;
    }
  }
  return expected;
}

bool IsOptimizerState(const CheckpointTensor& tensor) {
  return tensor.key.kind != kWeight && tensor.key.kind != kBuffer;
}

class GoldenTest : public testing::TestWithParam<DeepSpeedTag> {};

TEST_P(GoldenTest, EveryElementIsTheOneThatTheOptimizerHeld) {
  const Golden golden = ReadGolden(GetParam());
  const Expected expected = Arrange(golden);
  const auto checkpoint =
      OpenTag(GetParam(), {.allow_loss = IsElastic(GetParam())});
  std::set<TensorKey> seen;
  for (size_t t = 0; t < checkpoint->tensors().size(); ++t) {
    const CheckpointTensor& tensor = checkpoint->tensors()[t];
    if (!IsOptimizerState(tensor)) {
      continue;
    }
    ASSERT_TRUE(seen.insert(tensor.key).second) << tensor.key.ToString();
    const auto it = expected.tensors.find(tensor.key);
    ASSERT_NE(it, expected.tensors.end()) << tensor.key.ToString();
    EXPECT_EQ(tensor.shape.dims(), it->second->shape) << tensor.key.ToString();
    const int64_t held = tensor.missing.empty() ? tensor.shape.num_elements()
                                                : tensor.missing.front().begin;
    const std::vector<float> values = ReadTensorF32(*checkpoint, t, {0, held});
    ASSERT_LE(values.size(), it->second->floats.size());
    EXPECT_EQ(std::memcmp(values.data(), it->second->floats.data(),
                          values.size() * sizeof(float)),
              0)
        << tensor.key.ToString();
  }
  EXPECT_EQ(seen.size(), expected.tensors.size());
}

TEST_P(GoldenTest, StepsAreTheTrueOnes) {
  const Golden golden = ReadGolden(GetParam());
  const Expected expected = Arrange(golden);
  const auto checkpoint =
      OpenTag(GetParam(), {.allow_loss = IsElastic(GetParam())});
  for (const CheckpointTensor& tensor : checkpoint->tensors()) {
    if (tensor.key.kind != kMaster) {
      continue;
    }
    const ParamGroup& group =
        checkpoint->info().groups[static_cast<size_t>(tensor.group)];
    const auto it = expected.steps.find(tensor.key.parameter);
    if (it == expected.steps.end()) {
      EXPECT_FALSE(group.step.has_value()) << tensor.key.parameter;
    } else {
      EXPECT_EQ(static_cast<double>(group.step.value()), it->second)
          << tensor.key.parameter;
    }
  }
}

TEST_P(GoldenTest, WeightsAreRoundedMasters) {
  const auto checkpoint =
      OpenTag(GetParam(), {.allow_loss = IsElastic(GetParam())});
  size_t compared = 0;
  for (size_t t = 0; t < checkpoint->tensors().size(); ++t) {
    const CheckpointTensor& weight = checkpoint->tensors()[t];
    if (weight.key.kind != kWeight || weight.optimizer == Optimizer::kNone) {
      continue;
    }
    const auto master =
        FindTensor(*checkpoint, {weight.key.parameter, StateKind(kMaster)});
    ASSERT_TRUE(master.has_value()) << weight.key.parameter;
    // Stage 3 stores no weights of trained parameters.
    EXPECT_EQ(weight.derived, checkpoint->info().stage == 3);
    EXPECT_EQ(weight.stored_bytes == 0, weight.derived);
    const ElementRange all{0, weight.shape.num_elements()};
    std::vector<std::byte> stored(
        static_cast<size_t>(all.size() * SizeBytes(weight.dtype)));
    std::vector<std::byte> rounded(stored.size());
    ReadTensor(*checkpoint, t, all, stored);
    ConvertFromF32(ReadTensorF32(*checkpoint, *master, all), weight.dtype,
                   rounded);
    EXPECT_EQ(stored, rounded) << weight.key.parameter;
    ++compared;
  }
  EXPECT_GT(compared, 0U);
}

TEST_P(GoldenTest, ElasticMomentumIsRefusedByName) {
  if (!IsElastic(GetParam())) {
    EXPECT_NO_THROW(OpenTag(GetParam()));
    return;
  }
  try {
    OpenTag(GetParam());
    FAIL() << "a truncated momentum was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_EQ(error.place().tensor, "odd.weight/momentum");
    EXPECT_NE(error.message().find("element 90"), std::string::npos)
        << error.what();
  }
}

TEST_P(GoldenTest, PartialReadsEqualTheWhole) {
  const auto checkpoint =
      OpenTag(GetParam(), {.allow_loss = IsElastic(GetParam())});
  for (size_t t = 0; t < checkpoint->tensors().size(); ++t) {
    const CheckpointTensor& tensor = checkpoint->tensors()[t];
    const int64_t size = tensor.shape.num_elements();
    if (!tensor.missing.empty() || IsComplex(tensor.dtype) || size < 3) {
      continue;
    }
    const std::vector<double> whole = ReadTensorF64(*checkpoint, t, {0, size});
    const std::vector<double> head =
        ReadTensorF64(*checkpoint, t, {0, size / 3});
    std::vector<double> joined =
        ReadTensorF64(*checkpoint, t, {size / 3, size});
    joined.insert(joined.begin(), head.begin(), head.end());
    EXPECT_EQ(joined, whole) << tensor.key.ToString();
  }
}

INSTANTIATE_TEST_SUITE_P(AllTags, GoldenTest,
                         testing::ValuesIn(testutil::DeepSpeedTags()),
                         [](const testing::TestParamInfo<DeepSpeedTag>& tag) {
                           return testutil::TestName(tag.param.ToString());
                         });

}  // namespace
}  // namespace muonstore::deepspeed
