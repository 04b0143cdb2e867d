#include "src/store/kinds.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::SmallModel;

void Check(const std::vector<ParameterSpec>& model) {
  RequireStorable(model,
                  Partitioning::Build(model, {.stage = 2, .num_ranks = 2}));
}

// `change` of a sound model is refused, naming the parameter.
template <typename Change>
void ExpectRefused(size_t parameter, const Change& change,
                   const std::string& says) {
  auto model = SmallModel();
  change(model[parameter]);
  const auto check = [&] { Check(model); };
  EXPECT_EQ(CodeOf(check), ErrorCode::kInvalidArgument);
  EXPECT_THAT(TextOf(check), HasSubstr(says));
}

TEST(KindsTest, TakesASoundModel) { Check(SmallModel()); }

TEST(KindsTest, MuonNeedsAMatrixByLogicalShape) {
  ExpectRefused(
      2, [](ParameterSpec& spec) { spec.shape = Shape({54}); },
      "give this parameter to Adam");
}

TEST(KindsTest, ALayoutMustFit) {
  ExpectRefused(
      2, [](ParameterSpec& spec) { spec.layout = MatrixLayout::PerHead(4); },
      "per_head[4]");
}

TEST(KindsTest, NamesAreUnique) {
  ExpectRefused(
      2, [](ParameterSpec& spec) { spec.name = "mlp.down.weight"; },
      "two parameters");
}

TEST(KindsTest, ComputeWeightsAreFloatsOfOneDTypeAGroup) {
  ExpectRefused(
      2, [](ParameterSpec& spec) { spec.weight_dtype = DType::kF16; },
      "different dtypes");
  ExpectRefused(
      5, [](ParameterSpec& spec) { spec.weight_dtype = DType::kF64; },
      "another dtype");
}

TEST(KindsTest, AnotherOptimizerIsRefused) {
  auto model = SmallModel();
  model.push_back({.name = "lion",
                   .shape = Shape({3, 3}),
                   .group = 2,
                   .optimizer = Optimizer::kOther});
  const auto check = [&] { Check(model); };
  EXPECT_EQ(CodeOf(check), ErrorCode::kInvalidArgument);
  EXPECT_THAT(TextOf(check), HasSubstr("lion"));
}

TEST(KindsTest, ThePartitioningIsOfTheseParameters) {
  const auto model = SmallModel();
  const auto other =
      Partitioning::Build(std::span(model).first(3), {.num_ranks = 1});
  EXPECT_EQ(CodeOf([&] { RequireStorable(model, other); }),
            ErrorCode::kInvalidArgument);
}

TEST(KindsTest, APartitioningOfOtherShapesIsRefused) {
  const auto model = SmallModel();
  for (const Shape& shape : {Shape({90, 60}), Shape({3, 6})}) {
    auto other = model;
    other[2].shape = shape;
    const auto cut = Partitioning::Build(other, {.num_ranks = 2});
    const auto check = [&] { RequireStorable(model, cut); };
    EXPECT_EQ(CodeOf(check), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(check), HasSubstr("mlp.up.weight"));
  }
}

TEST(KindsTest, AFlatGroupHasOneOptimizerAndParamGroup) {
  const auto model = SmallModel();
  const auto cut = Partitioning::FromGroups(
      model, {.stage = 2, .num_ranks = 1},
      {{.group = 0, .parameters = {0, 1, 2, 3, 4, 5}}});
  EXPECT_EQ(CodeOf([&] { RequireStorable(model, cut); }),
            ErrorCode::kInvalidArgument);
  const auto renumbered =
      Partitioning::FromGroups(model, {.stage = 2, .num_ranks = 1},
                               {{.group = 7, .parameters = {1, 2, 3, 4}},
                                {.group = 1, .parameters = {0, 5}}});
  EXPECT_EQ(CodeOf([&] { RequireStorable(model, renumbered); }),
            ErrorCode::kInvalidArgument);
}

TEST(KindsTest, AParameterThatThePartitioningLeavesOutIsNamed) {
  const auto model = SmallModel();
  const auto cut =
      Partitioning::FromGroups(model, {.stage = 2, .num_ranks = 1},
                               {{.group = 0, .parameters = {1, 2, 3}},
                                {.group = 1, .parameters = {0, 5}}});
  EXPECT_THAT(TextOf([&] { RequireStorable(model, cut); }),
              HasSubstr("experts.weight"));
}

TEST(KindsTest, SizesBeyond64BitsAreRefused) {
  const std::vector<ParameterSpec> model = {
      {.name = "huge",
       .shape = Shape({(int64_t{1} << 62) + 16}),
       .optimizer = Optimizer::kAdam}};
  EXPECT_EQ(CodeOf([&] { Check(model); }), ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace muonstore
