// Random models and rules against flat buffers that an oracle writes element by
// element.
#include <algorithm>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/copy_plan.h"
#include "muonstore/partitioning.h"
#include "tests/oracle/zero_oracle.h"
#include "tests/partition/random_model.h"
#include "tests/partition/slots.h"

namespace muonstore {
namespace {

using oracle::kPadding;
using oracle::Labels;

std::string Describe(const std::vector<ParameterSpec>& specs,
                     const ZeroRule& rule) {
  std::ostringstream text;
  text << "stage " << rule.stage << " ranks " << rule.num_ranks << " alignment "
       << rule.flat_alignment_elements << " round robin " << rule.round_robin
       << " parameter alignment " << rule.parameter_alignment << " sub-group "
       << rule.sub_group_size << " whole rows " << rule.whole_rows;
  for (const ParameterSpec& spec : specs) {
    text << "\n  group " << spec.group << " " << OptimizerName(spec.optimizer)
         << " " << spec.shape.ToString() << " " << DTypeName(spec.weight_dtype);
  }
  return text.str();
}

// Labels by position, without the padding.
std::map<int64_t, int64_t> WithoutPadding(const Labels& labels) {
  std::map<int64_t, int64_t> kept;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != kPadding) {
      kept[static_cast<int64_t>(i)] = labels[i];
    }
  }
  return kept;
}

// The oracle's buffers, those that hold nothing but padding left out.
Buffers OracleBuffers(const std::vector<oracle::Group>& groups,
                      const Partitioning& partitioning) {
  Buffers buffers;
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t rank = 0; rank < groups[g].ranks.size(); ++rank) {
      const auto labels = WithoutPadding(groups[g].ranks[rank]);
      if (!labels.empty()) {
        buffers[partitioning.segment(static_cast<int32_t>(rank),
                                     static_cast<int32_t>(g))] = labels;
      }
    }
  }
  return buffers;
}

void ExpectGroup(const FlatGroup& found, const oracle::Group& expected) {
  EXPECT_EQ(found.group, expected.group);
  EXPECT_EQ(found.parameters, expected.order);
  EXPECT_EQ(found.pad_after, expected.pad_after);
  EXPECT_EQ(found.partition_elements,
            static_cast<int64_t>(expected.ranks[0].size()));
}

void ExpectGroups(const Partitioning& partitioning,
                  const std::vector<oracle::Group>& groups) {
  ASSERT_EQ(partitioning.groups().size(), groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    ExpectGroup(partitioning.groups()[g], groups[g]);
  }
}

// The padding at the end of all ranks together, by rank.
std::vector<int64_t> TailPaddings(const oracle::Group& group) {
  std::vector<int64_t> paddings;
  bool is_behind_data = true;
  for (auto rank = group.ranks.rbegin(); rank != group.ranks.rend(); ++rank) {
    int64_t padding = 0;
    for (auto label = rank->rbegin(); label != rank->rend(); ++label) {
      is_behind_data = is_behind_data && *label == kPadding;
      padding += is_behind_data ? 1 : 0;
    }
    paddings.insert(paddings.begin(), padding);
  }
  return paddings;
}

void ExpectTailPaddings(const Partitioning& partitioning,
                        const std::vector<oracle::Group>& groups) {
  for (size_t g = 0; g < groups.size(); ++g) {
    std::vector<int64_t> expected = TailPaddings(groups[g]);
    if (partitioning.stage() == 3) {
      std::fill(expected.begin(), expected.end(), 0);
    }
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_EQ(partitioning.tail_padding(static_cast<int32_t>(rank),
                                          static_cast<int32_t>(g)),
                expected[rank]);
    }
  }
}

// Which parameters of `order` have one of the labels, as indices into it.
std::vector<int32_t> Owners(const Labels& labels, const std::vector<int>& order,
                            const std::vector<int64_t>& first_labels) {
  std::vector<int32_t> owners;
  for (size_t k = 0; k < order.size(); ++k) {
    const auto parameter = static_cast<size_t>(order[k]);
    const int64_t begin = first_labels[parameter];
    const int64_t end = parameter + 1 < first_labels.size()
                            ? first_labels[parameter + 1]
                            : INT64_MAX;
    if (std::any_of(labels.begin(), labels.end(), [begin, end](int64_t label) {
          return label >= begin && label < end;
        })) {
      owners.push_back(static_cast<int32_t>(k));
    }
  }
  return owners;
}

void ExpectParametersOnRanks(const Partitioning& partitioning,
                             const std::vector<oracle::Group>& groups,
                             const std::vector<int64_t>& first_labels) {
  for (size_t g = 0; g < groups.size(); ++g) {
    for (size_t rank = 0; rank < groups[g].ranks.size(); ++rank) {
      EXPECT_EQ(partitioning.parameters_on_rank(static_cast<int32_t>(rank),
                                                static_cast<int32_t>(g)),
                Owners(groups[g].ranks[rank], groups[g].order, first_labels));
    }
  }
}

void ExpectEachElementOnce(const Partitioning& partitioning,
                           const std::vector<ParameterSpec>& specs) {
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto parameter = static_cast<int32_t>(i);
    const std::vector<Fragment> fragments = partitioning.fragments(parameter);
    const bool is_in_group = partitioning.flat_group_of(parameter) >= 0;
    const int64_t elements = is_in_group ? specs[i].shape.num_elements() : 0;
    EXPECT_TRUE(CheckCoverage(fragments, elements).complete());
    EXPECT_TRUE(std::is_sorted(fragments.begin(), fragments.end(),
                               [](const Fragment& a, const Fragment& b) {
                                 return a.segment < b.segment;
                               }));
  }
}

TEST(PartitioningPropertyTest, AgreesWithBuffersWrittenElementByElement) {
  Random random(1);
  for (int round = 0; round < 900; ++round) {
    const std::vector<ParameterSpec> specs = RandomSpecs(random);
    const ZeroRule rule = RandomRule(random, 1 + round % 3);
    SCOPED_TRACE(Describe(specs, rule));
    const std::vector<oracle::Parameter> parameters = ForOracle(specs);
    const std::vector<oracle::Group> groups =
        oracle::WriteFlat(parameters, ForOracle(rule));
    const std::vector<int64_t> first = oracle::FirstLabels(parameters);
    const Partitioning partitioning = Partitioning::Build(specs, rule);
    ExpectGroups(partitioning, groups);
    ExpectTailPaddings(partitioning, groups);
    ExpectParametersOnRanks(partitioning, groups, first);
    ExpectEachElementOnce(partitioning, specs);
    Buffers found;
    for (size_t i = 0; i < specs.size(); ++i) {
      Fill(partitioning.fragments(static_cast<int32_t>(i)), first[i], found);
    }
    EXPECT_EQ(found, OracleBuffers(groups, partitioning));
    if (HasFailure()) {
      return;
    }
  }
}

// Only what a file lists.
std::vector<FlatGroup> AsListed(const Partitioning& partitioning) {
  std::vector<FlatGroup> listed;
  for (const FlatGroup& group : partitioning.groups()) {
    FlatGroup& copy = listed.emplace_back();
    copy.group = group.group;
    copy.parameters = group.parameters;
    copy.pad_after = group.pad_after;
  }
  return listed;
}

TEST(PartitioningPropertyTest, FromGroupsRepeatsBuild) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const std::vector<ParameterSpec> specs = RandomSpecs(random);
    const ZeroRule rule = RandomRule(random, 1 + round % 3);
    SCOPED_TRACE(Describe(specs, rule));
    const Partitioning built = Partitioning::Build(specs, rule);
    const Partitioning read =
        Partitioning::FromGroups(specs, rule, AsListed(built));
    for (int32_t i = 0; i < built.num_parameters(); ++i) {
      EXPECT_EQ(read.fragments(i), built.fragments(i));
    }
    for (size_t g = 0; g < built.groups().size(); ++g) {
      EXPECT_EQ(read.groups()[g].num_elements, built.groups()[g].num_elements);
    }
  }
}

// Moves every parameter from one partitioning to another.
Buffers Reshard(const Partitioning& from, const Buffers& source,
                const Partitioning& to) {
  Buffers dest;
  for (int32_t i = 0; i < from.num_parameters(); ++i) {
    Execute(PlanCopy(from.fragments(i), to.fragments(i)), source, dest);
  }
  return dest;
}

TEST(PartitioningPropertyTest, ReshardingEqualsPartitioningDirectly) {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    const std::vector<ParameterSpec> specs = RandomSpecs(random);
    const ZeroRule from_rule =
        RandomRule(random, static_cast<int32_t>(random.Pick(1, 3)));
    const ZeroRule to_rule =
        RandomRule(random, static_cast<int32_t>(random.Pick(1, 3)));
    SCOPED_TRACE(Describe(specs, from_rule) + "\nto " + Describe({}, to_rule));
    const std::vector<oracle::Parameter> parameters = ForOracle(specs);
    const Partitioning from = Partitioning::Build(specs, from_rule);
    const Partitioning to = Partitioning::Build(specs, to_rule);
    const Buffers source = OracleBuffers(
        oracle::WriteFlat(parameters, ForOracle(from_rule)), from);
    const Buffers expected =
        OracleBuffers(oracle::WriteFlat(parameters, ForOracle(to_rule)), to);
    const Buffers moved = Reshard(from, source, to);
    EXPECT_EQ(moved, expected);
    EXPECT_EQ(Reshard(to, moved, from), source);
    if (HasFailure()) {
      return;
    }
  }
}

void ExpectInverse(const std::vector<Fragment>& pieces, int64_t elements) {
  const std::vector<Fragment> whole = {{.length = elements}};
  Buffers scattered;
  Fill(pieces, 500, scattered);
  Buffers gathered;
  Execute(PlanCopy(pieces, whole), scattered, gathered);
  for (int64_t element = 0; element < elements; ++element) {
    EXPECT_EQ(gathered[0][element], 500 + element);
  }
  Buffers again;
  Execute(PlanCopy(whole, pieces), gathered, again);
  EXPECT_EQ(again, scattered);
}

TEST(PartitioningPropertyTest, GatherAndScatterAreInverse) {
  Random random(4);
  for (int round = 0; round < 300; ++round) {
    const std::vector<ParameterSpec> specs = RandomSpecs(random);
    const ZeroRule rule = RandomRule(random, 1 + round % 3);
    SCOPED_TRACE(Describe(specs, rule));
    const Partitioning partitioning = Partitioning::Build(specs, rule);
    for (int32_t i = 0; i < partitioning.num_parameters(); ++i) {
      const std::vector<Fragment> pieces = partitioning.fragments(i);
      if (!pieces.empty()) {
        ExpectInverse(pieces,
                      specs[static_cast<size_t>(i)].shape.num_elements());
      }
    }
  }
}

}  // namespace
}  // namespace muonstore
