// The worked example whose numbers were measured on DeepSpeed 0.19.8, and the
// cases that a rule must not get wrong at its edges.
#include "muonstore/partitioning.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ParameterSpec Muon(const char* name, std::vector<int64_t> dims,
                   int32_t group = 0) {
  return {.name = name,
          .shape = Shape(std::move(dims)),
          .group = group,
          .optimizer = Optimizer::kMuon};
}

ParameterSpec Adam(const char* name, std::vector<int64_t> dims,
                   int32_t group = 1) {
  return {.name = name,
          .shape = Shape(std::move(dims)),
          .group = group,
          .optimizer = Optimizer::kAdam};
}

ParameterSpec Frozen(const char* name, std::vector<int64_t> dims) {
  return {.name = name,
          .shape = Shape(std::move(dims)),
          .optimizer = Optimizer::kNone};
}

enum : int32_t {
  kEmbed,
  kFc1,
  kFc1Bias,
  kNorm,
  kNormBias,
  kFc3,
  kFc2,
  kFrozen,
  kLmHead,
};

// In an order in which the Muon matrices are not sorted.
std::vector<ParameterSpec> ExampleModel() {
  return {Adam("embed_tokens", {11, 6}), Muon("fc1.weight", {9, 6}),
          Adam("fc1.bias", {9}),         Adam("norm.weight", {9}),
          Adam("norm.bias", {9}),        Muon("fc3.weight", {7, 7}),
          Muon("fc2.weight", {7, 9}),    Frozen("frozen.weight", {7, 7}),
          Adam("lm_head.weight", {5, 7})};
}

Partitioning Build(int32_t stage, int32_t num_ranks, ZeroRule rule = {}) {
  rule.stage = stage;
  rule.num_ranks = num_ranks;
  return Partitioning::Build(ExampleModel(), rule);
}

std::vector<int64_t> TailPaddings(const Partitioning& partitioning,
                                  int32_t group) {
  std::vector<int64_t> paddings;
  for (int32_t rank = 0; rank < partitioning.num_ranks(); ++rank) {
    paddings.push_back(partitioning.tail_padding(rank, group));
  }
  return paddings;
}

// Elements of DeepSpeed's whole-matrix momentum buffer of each rank.
std::vector<int64_t> WholeMatrixElements(const Partitioning& partitioning,
                                         int32_t group) {
  const std::vector<ParameterSpec> specs = ExampleModel();
  const FlatGroup& flat = partitioning.groups()[static_cast<size_t>(group)];
  std::vector<int64_t> elements;
  for (int32_t rank = 0; rank < partitioning.num_ranks(); ++rank) {
    int64_t sum = 0;
    for (const int32_t k : partitioning.parameters_on_rank(rank, group)) {
      const int32_t parameter = flat.parameters[static_cast<size_t>(k)];
      sum += specs[static_cast<size_t>(parameter)].shape.num_elements();
    }
    elements.push_back(sum);
  }
  return elements;
}

TEST(ZeroStage12Test, TwoRanks) {
  const Partitioning p = Build(2, 2);
  ASSERT_THAT(p.groups(), SizeIs(2));
  const FlatGroup& muon = p.groups()[0];
  EXPECT_THAT(muon.parameters, ElementsAre(kFc1, kFc2, kFc3));
  EXPECT_THAT(muon.offsets, ElementsAre(0, 54, 117));
  EXPECT_THAT(muon.pad_after, ElementsAre(0, 0, 0));
  EXPECT_EQ(muon.num_elements, 166);
  EXPECT_EQ(muon.partition_elements, 84);
  EXPECT_THAT(TailPaddings(p, 0), ElementsAre(0, 2));
  EXPECT_THAT(WholeMatrixElements(p, 0), ElementsAre(117, 112));
  const FlatGroup& adam = p.groups()[1];
  EXPECT_THAT(adam.parameters,
              ElementsAre(kEmbed, kFc1Bias, kNorm, kNormBias, kLmHead));
  EXPECT_EQ(adam.num_elements, 128);
  EXPECT_EQ(adam.partition_elements, 64);
  EXPECT_THAT(TailPaddings(p, 1), ElementsAre(0, 0));
}

TEST(ZeroStage12Test, FourAndEightRanks) {
  const Partitioning four = Build(1, 4);
  EXPECT_EQ(four.groups()[0].partition_elements, 42);
  EXPECT_THAT(TailPaddings(four, 0), ElementsAre(0, 0, 0, 2));
  EXPECT_THAT(WholeMatrixElements(four, 0), ElementsAre(54, 117, 112, 49));
  const Partitioning eight = Build(1, 8);
  EXPECT_EQ(eight.groups()[0].partition_elements, 22);
  EXPECT_THAT(TailPaddings(eight, 0), ElementsAre(0, 0, 0, 0, 0, 0, 0, 10));
  EXPECT_THAT(WholeMatrixElements(eight, 0),
              ElementsAre(54, 54, 117, 63, 63, 112, 49, 49));
}

TEST(ZeroStage12Test, SliceMappingsOfTwoRanks) {
  const Partitioning p = Build(2, 2);
  EXPECT_THAT(p.fragments(kFc1), ElementsAre(Fragment{0, 54, 1, 0, 0, 0}));
  EXPECT_THAT(p.fragments(kFc2), ElementsAre(Fragment{0, 30, 1, 0, 0, 54},
                                             Fragment{30, 33, 1, 0, 2, 0}));
  EXPECT_THAT(p.fragments(kFc3), ElementsAre(Fragment{0, 49, 1, 0, 2, 33}));
  EXPECT_THAT(p.fragments(kEmbed), ElementsAre(Fragment{0, 64, 1, 0, 1, 0},
                                               Fragment{64, 2, 1, 0, 3, 0}));
  EXPECT_THAT(p.fragments(kFc1Bias), ElementsAre(Fragment{0, 9, 1, 0, 3, 2}));
  EXPECT_THAT(p.fragments(kLmHead), ElementsAre(Fragment{0, 35, 1, 0, 3, 29}));
  EXPECT_EQ(p.segment(1, 1), 3);
}

TEST(ZeroStage12Test, ParameterAlignment) {
  ZeroRule rule;
  rule.parameter_alignment = true;
  const Partitioning p = Build(2, 2, rule);
  EXPECT_THAT(p.groups()[0].pad_after, ElementsAre(2, 1, 0));
  EXPECT_EQ(p.groups()[0].partition_elements, 86);
  EXPECT_THAT(TailPaddings(p, 0), ElementsAre(0, 3));
  EXPECT_THAT(WholeMatrixElements(p, 0), ElementsAre(117, 112));
  EXPECT_THAT(p.groups()[1].pad_after, ElementsAre(6, 7, 7, 7, 0));
  EXPECT_EQ(p.groups()[1].partition_elements, 78);
  EXPECT_THAT(TailPaddings(p, 1), ElementsAre(0, 1));
  EXPECT_THAT(p.fragments(kFc2), ElementsAre(Fragment{0, 30, 1, 0, 0, 56},
                                             Fragment{30, 33, 1, 0, 2, 0}));
  EXPECT_THAT(p.fragments(kFc3), ElementsAre(Fragment{0, 49, 1, 0, 2, 34}));
}

TEST(ZeroStage12Test, ParameterAlignmentCountsBytes) {
  std::vector<ParameterSpec> specs = {Muon("a", {1, 9}), Muon("b", {1, 9})};
  ZeroRule rule;
  rule.parameter_alignment = true;
  for (const auto& [dtype, pad] : {std::tuple{DType::kF32, 3},
                                   {DType::kBF16, 7},
                                   {DType::kF64, 1},
                                   {DType::kF8E5M2, 7}}) {
    specs[0].weight_dtype = dtype;
    const Partitioning p = Partitioning::Build(specs, rule);
    EXPECT_THAT(p.groups()[0].pad_after, ElementsAre(pad, 0))
        << DTypeName(dtype);
  }
}

TEST(ZeroStage12Test, RoundRobinDealsParametersToRanks) {
  ZeroRule rule;
  rule.round_robin = true;
  const Partitioning p = Build(2, 2, rule);
  EXPECT_THAT(p.groups()[0].parameters, ElementsAre(kFc1, kFc3, kFc2));
  EXPECT_THAT(p.groups()[0].offsets, ElementsAre(0, 54, 103));
  EXPECT_THAT(p.groups()[1].parameters,
              ElementsAre(kEmbed, kNorm, kLmHead, kFc1Bias, kNormBias));
}

TEST(ZeroStage12Test, ModuleOrderUnderZeroInit) {
  ZeroRule rule;
  rule.muon_order = MuonOrder::kAsGiven;
  EXPECT_THAT(Build(2, 2, rule).groups()[0].parameters,
              ElementsAre(kFc1, kFc3, kFc2));
}

TEST(ZeroStage12Test, SortingIsStableAndByTuple) {
  const std::vector<ParameterSpec> specs = {
      Muon("a", {4, 8}), Muon("b", {5, 2}),    Muon("c", {4, 8}),
      Muon("d", {4, 9}), Muon("e", {4, 8, 1}), Muon("f", {12})};
  const Partitioning p = Partitioning::Build(specs, ZeroRule{});
  EXPECT_THAT(p.groups()[0].parameters, ElementsAre(5, 1, 3, 4, 0, 2));
}

TEST(ZeroStage12Test, AlignmentFactorPadsEachPartition) {
  ZeroRule rule;
  rule.flat_alignment_elements = 8;
  const Partitioning p = Build(2, 3, rule);
  EXPECT_EQ(p.groups()[0].partition_elements, 56);
  EXPECT_THAT(TailPaddings(p, 0), ElementsAre(0, 0, 2));
}

TEST(ZeroStage12Test, PaddingMayCoverWholeRanks) {
  ZeroRule rule;
  rule.num_ranks = 5;
  const std::vector<ParameterSpec> specs = {Muon("w", {1, 3})};
  const Partitioning p = Partitioning::Build(specs, rule);
  EXPECT_EQ(p.groups()[0].partition_elements, 2);
  EXPECT_THAT(TailPaddings(p, 0), ElementsAre(0, 1, 2, 2, 2));
  EXPECT_THAT(p.fragments(0), ElementsAre(Fragment{0, 2, 1, 0, 0, 0},
                                          Fragment{2, 1, 1, 0, 1, 0}));
  EXPECT_THAT(p.parameters_on_rank(1, 0), ElementsAre(0));
  EXPECT_THAT(p.parameters_on_rank(2, 0), IsEmpty());
}

TEST(ZeroStage3Test, EachParameterIsCut) {
  const Partitioning p = Build(3, 2);
  ASSERT_THAT(p.groups(), SizeIs(2));
  EXPECT_THAT(p.groups()[0].offsets, ElementsAre(0, 27, 59));
  EXPECT_EQ(p.groups()[0].partition_elements, 84);
  EXPECT_EQ(p.groups()[0].num_elements, 166);
  EXPECT_EQ(p.groups()[1].partition_elements, 66);
  EXPECT_THAT(p.fragments(kFc2), ElementsAre(Fragment{0, 32, 1, 0, 0, 27},
                                             Fragment{32, 31, 1, 0, 2, 27}));
  EXPECT_THAT(TailPaddings(p, 0), ElementsAre(0, 0));
}

TEST(ZeroStage3Test, PartitionSizesOfMoreRanks) {
  EXPECT_EQ(Build(3, 3).groups()[0].partition_elements, 56);
  EXPECT_EQ(Build(3, 4).groups()[0].partition_elements, 43);
  EXPECT_EQ(Build(3, 8).groups()[0].partition_elements, 22);
}

TEST(ZeroStage3Test, SubGroupsCloseOnceTheyAreFull) {
  ZeroRule rule;
  rule.sub_group_size = 40;
  const Partitioning p = Build(3, 2, rule);
  ASSERT_THAT(p.groups(), SizeIs(4));
  EXPECT_THAT(p.groups()[0].parameters, ElementsAre(kFc1, kFc2));
  EXPECT_THAT(p.groups()[1].parameters, ElementsAre(kFc3));
  EXPECT_THAT(p.groups()[2].parameters, ElementsAre(kEmbed, kFc1Bias, kNorm));
  EXPECT_THAT(p.groups()[3].parameters, ElementsAre(kNormBias, kLmHead));
  const std::vector<int64_t> sizes = {59, 25, 43, 23};
  const std::vector<int32_t> param_groups = {0, 0, 1, 1};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(p.groups()[i].partition_elements, sizes[i]);
    EXPECT_EQ(p.groups()[i].group, param_groups[i]);
  }
  EXPECT_EQ(p.flat_group_of(kLmHead), 3);
}

TEST(ZeroStage3Test, RanksBehindTheLastPieceHoldNothing) {
  // 9 elements on 8 ranks: pieces of 2, the fifth has 1, three are empty.
  ZeroRule rule;
  rule.stage = 3;
  rule.num_ranks = 8;
  const std::vector<ParameterSpec> specs = {Muon("a", {3, 3}),
                                            Muon("b", {1, 16})};
  const Partitioning p = Partitioning::Build(specs, rule);
  EXPECT_THAT(p.fragments(0), SizeIs(5));
  EXPECT_EQ(p.fragments(0).back(), (Fragment{8, 1, 1, 0, 4, 0}));
  EXPECT_THAT(p.parameters_on_rank(4, 0), ElementsAre(0, 1));
  EXPECT_THAT(p.parameters_on_rank(5, 0), ElementsAre(1));
}

TEST(PartitioningTest, FrozenAndEmptyParametersAreInNoGroup) {
  const std::vector<ParameterSpec> specs = {
      Frozen("frozen", {4}), Muon("empty", {0, 4}), Muon("w", {2, 2}, 5)};
  for (const int32_t stage : {1, 2, 3}) {
    ZeroRule rule;
    rule.stage = stage;
    const Partitioning p = Partitioning::Build(specs, rule);
    ASSERT_THAT(p.groups(), SizeIs(1));
    EXPECT_EQ(p.groups()[0].group, 5);
    EXPECT_THAT((std::vector{p.flat_group_of(0), p.flat_group_of(1),
                             p.flat_group_of(2)}),
                ElementsAre(-1, -1, 0));
    EXPECT_THAT(p.fragments(0), IsEmpty());
    EXPECT_THAT(p.fragments(1), IsEmpty());
  }
}

TEST(PartitioningTest, AModelWithoutParametersHasNoGroups) {
  EXPECT_THAT(Partitioning::Build({}, ZeroRule{}).groups(), IsEmpty());
}

TEST(PartitioningTest, RefusesRulesThatMakeNoSense) {
  const auto expect_refused = [](const ZeroRule& rule) {
    EXPECT_EQ(CodeOf([&] { Partitioning::Build(ExampleModel(), rule); }),
              ErrorCode::kInvalidArgument);
  };
  expect_refused({.stage = 0});
  expect_refused({.stage = 4});
  expect_refused({.num_ranks = 0});
  expect_refused({.num_ranks = -3});
  expect_refused({.flat_alignment_elements = 0});
  expect_refused({.stage = 3, .sub_group_size = 0});
}

TEST(PartitioningTest, RefusesGroupsOfTwoOptimizersAndNegativeGroups) {
  const std::vector<ParameterSpec> mixed = {Muon("a", {2, 2}),
                                            Adam("b", {2}, 0)};
  const std::vector<ParameterSpec> negative = {Muon("a", {2, 2}, -1)};
  for (const auto& specs : {mixed, negative}) {
    const std::optional<Error> error =
        ErrorOf([&] { Partitioning::Build(specs, ZeroRule{}); });
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_EQ(error->place().tensor, specs.back().name);
  }
}

TEST(PartitioningTest, RefusesCountsBeyond64Bits) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const std::vector<ParameterSpec> specs = {Muon("a", {kMax - 1}),
                                            Muon("b", {kMax - 1})};
  for (const int32_t stage : {2, 3}) {
    for (const int32_t num_ranks : {1, 2}) {
      ZeroRule rule;
      rule.stage = stage;
      rule.num_ranks = num_ranks;
      rule.sub_group_size = kMax;
      EXPECT_EQ(CodeOf([&] { Partitioning::Build(specs, rule); }),
                ErrorCode::kDataLoss);
    }
  }
}

FlatGroup GivenGroup(std::vector<int32_t> parameters,
                     std::vector<int64_t> pad_after = {},
                     int64_t partition_elements = 0) {
  FlatGroup group;
  group.parameters = std::move(parameters);
  group.pad_after = std::move(pad_after);
  group.partition_elements = partition_elements;
  return group;
}

TEST(FromGroupsTest, KeepsTheOrderAndPaddingsOfAFile) {
  ZeroRule rule;
  rule.num_ranks = 2;
  const Partitioning p = Partitioning::FromGroups(
      ExampleModel(), rule, {GivenGroup({kFc3, kFc1}, {5, 3})});
  EXPECT_THAT(p.groups()[0].parameters, ElementsAre(kFc3, kFc1));
  EXPECT_THAT(p.groups()[0].offsets, ElementsAre(0, 54));
  EXPECT_EQ(p.groups()[0].num_elements, 111);
  EXPECT_EQ(p.groups()[0].partition_elements, 56);
  EXPECT_THAT(p.fragments(kFc1), ElementsAre(Fragment{0, 2, 1, 0, 0, 54},
                                             Fragment{2, 52, 1, 0, 1, 0}));
  EXPECT_EQ(p.flat_group_of(kFc2), -1);
}

TEST(FromGroupsTest, TakesALargerPartitionFromTheFile) {
  for (const int32_t stage : {2, 3}) {
    ZeroRule rule;
    rule.stage = stage;
    rule.num_ranks = 2;
    const Partitioning p = Partitioning::FromGroups(
        ExampleModel(), rule, {GivenGroup({kFc1}, {}, 40)});
    EXPECT_EQ(p.groups()[0].partition_elements, 40);
    EXPECT_EQ(p.tail_padding(1, 0), stage == 3 ? 0 : 26);
  }
}

TEST(FromGroupsTest, TakesAnUnalignedPartitionThatIsJustLargeEnough) {
  ZeroRule rule;
  rule.num_ranks = 2;
  const auto size_for = [&rule](int64_t given) {
    return Partitioning::FromGroups(ExampleModel(), rule,
                                    {GivenGroup({kFc1}, {}, given)})
        .groups()[0]
        .partition_elements;
  };
  EXPECT_EQ(size_for(27), 27);  // 54 elements on 2 ranks.
  EXPECT_EQ(size_for(26), 28);  // Too small: the rule's size.
  EXPECT_EQ(size_for(0), 28);
}

TEST(FromGroupsTest, AcceptsParametersWithoutElements) {
  const std::vector<ParameterSpec> specs = {
      Muon("zero", {0, 3}), Muon("w", {2, 3}), Muon("other", {3, 0})};
  for (const int32_t stage : {1, 3}) {
    ZeroRule rule;
    rule.stage = stage;
    rule.num_ranks = 3;
    const Partitioning p =
        Partitioning::FromGroups(specs, rule, {GivenGroup({0, 1, 2})});
    EXPECT_EQ(p.flat_group_of(0), 0);
    EXPECT_THAT(p.fragments(0), IsEmpty());
    EXPECT_THAT(p.fragments(1), SizeIs(3));
    for (int32_t rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(p.parameters_on_rank(rank, 0), ElementsAre(1));
    }
  }
}

TEST(FromGroupsTest, AcceptsEmptyGroups) {
  const Partitioning p =
      Partitioning::FromGroups(ExampleModel(), {}, {GivenGroup({})});
  EXPECT_EQ(p.groups()[0].partition_elements, 0);
  EXPECT_EQ(p.tail_padding(0, 0), 0);
  EXPECT_THAT(p.parameters_on_rank(0, 0), IsEmpty());
}

TEST(FromGroupsTest, RefusesGroupsThatMakeNoSense) {
  const auto expect_refused = [](const std::vector<FlatGroup>& groups,
                                 const char* part, int32_t stage = 2) {
    ZeroRule rule;
    rule.stage = stage;
    const std::optional<Error> error = ErrorOf(
        [&] { Partitioning::FromGroups(ExampleModel(), rule, groups); });
    ASSERT_TRUE(error.has_value()) << part;
    EXPECT_EQ(error->code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error->what(), HasSubstr(part));
  };
  expect_refused({GivenGroup({kFc1, 9})}, "does not exist");
  expect_refused({GivenGroup({-1})}, "does not exist");
  expect_refused({GivenGroup({kFc1, kFc1})}, "fc1.weight");
  expect_refused({GivenGroup({kFc1}), GivenGroup({kFc2, kFc1})}, "fc1.weight");
  expect_refused({GivenGroup({kFc1, kFc2}, {0})}, "paddings");
  expect_refused({GivenGroup({kFc1}, {-1})}, "paddings");
  expect_refused({GivenGroup({kFc1}, {1})}, "paddings", 3);
}

TEST(PartitioningTest, ThousandRanksAndManyParametersStaySmall) {
  std::vector<ParameterSpec> specs(100'000, Muon("w", {2, 3}));
  ZeroRule rule;
  rule.num_ranks = 1024;
  const Partitioning p = Partitioning::Build(specs, rule);
  int64_t elements = 0;
  size_t pieces = 0;
  for (int32_t i = 0; i < p.num_parameters(); ++i) {
    for (const Fragment& fragment : p.fragments(i)) {
      elements += fragment.length;
      ++pieces;
    }
  }
  EXPECT_EQ(elements, 600'000);
  EXPECT_LT(pieces, 101'024U);
  // 587 elements are needed, 588 are the next even number.
  EXPECT_EQ(p.groups()[0].partition_elements, 586);
  size_t held = 0;
  for (int32_t rank = 0; rank < rule.num_ranks; ++rank) {
    held += p.parameters_on_rank(rank, 0).size();
  }
  EXPECT_EQ(held, pieces);
}

// As torch.chunk(tensor, 4) cuts: 2 + 2 + 2 + 1 rows of 7, 2 + 1 + 0 + 0 of 3.
TEST(WholeRowsTest, PiecesAreTheChunksOfTorch) {
  const std::vector<ParameterSpec> specs = {
      Muon("a", {7, 5}), Muon("b", {3, 4}), Adam("c", {5}), Adam("d", {})};
  const Partitioning cut = Partitioning::Build(
      specs, {.stage = 3, .num_ranks = 4, .whole_rows = true});
  const auto lengths = [&](int32_t parameter) {
    std::vector<int64_t> result;
    for (const Fragment& fragment : cut.fragments(parameter)) {
      result.push_back(fragment.length);
    }
    return result;
  };
  EXPECT_THAT(lengths(0), ElementsAre(10, 10, 10, 5));
  EXPECT_THAT(lengths(1), ElementsAre(4, 4, 4));
  EXPECT_THAT(lengths(2), ElementsAre(2, 2, 1));
  EXPECT_THAT(lengths(3), ElementsAre(1));
  EXPECT_EQ(cut.piece_elements(0), 10);
  EXPECT_EQ(cut.groups()[0].partition_elements, 14);
}

TEST(WholeRowsTest, IsOfStageThreeAlone) {
  const auto build = [] {
    Partitioning::Build(ExampleModel(), {.stage = 2, .whole_rows = true});
  };
  EXPECT_EQ(CodeOf(build), ErrorCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(build), HasSubstr("whole rows"));
}

}  // namespace
}  // namespace muonstore
