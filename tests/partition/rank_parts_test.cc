#include "src/partition/rank_parts.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/partition/random_model.h"

namespace muonstore {
namespace {

// The fragments of every parameter, sorted into segments.
TEST(RankParts, AreTheFragmentsSeenFromARank) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::vector<ParameterSpec> specs = RandomSpecs(random);
    const ZeroRule rule =
        RandomRule(random, static_cast<int32_t>(random.Pick(1, 3)));
    const Partitioning cut = Partitioning::Build(specs, rule);
    std::map<int32_t, std::map<int64_t, RankPart>> want;
    for (int32_t p = 0; p < cut.num_parameters(); ++p) {
      for (const Fragment& fragment : cut.fragments(p)) {
        want[fragment.segment][fragment.segment_offset] = {
            p, fragment.tensor_offset, fragment.segment_offset,
            fragment.length};
      }
    }
    for (int32_t rank = 0; rank < cut.num_ranks(); ++rank) {
      for (size_t g = 0; g < cut.groups().size(); ++g) {
        const auto group = static_cast<int32_t>(g);
        std::vector<RankPart> expected;
        for (const auto& [offset, part] : want[cut.segment(rank, group)]) {
          expected.push_back(part);
        }
        EXPECT_EQ(PartsOnRank(cut, specs, rank, group), expected);
      }
    }
  }
}

}  // namespace
}  // namespace muonstore
