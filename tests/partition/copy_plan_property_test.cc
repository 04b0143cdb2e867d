// Random cuts and meshes, copied element by element.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/copy_plan.h"
#include "muonstore/error.h"
#include "tests/partition/random_model.h"
#include "tests/partition/slots.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::StartsWith;

constexpr int64_t kFirstLabel = 1000;

std::vector<Fragment> RandomFragments(Random& random, const Box& tensor) {
  return random.Chance(60)
             ? RandomMesh(random, tensor)
             : RandomCuts(random, tensor.planes * tensor.rows * tensor.cols,
                          static_cast<int32_t>(random.Pick(1, 4)));
}

Box RandomBox(Random& random) {
  return {random.Chance(60) ? 1 : random.Pick(2, 4), random.Pick(1, 12),
          random.Pick(1, 12)};
}

void ExpectTidy(const std::vector<CopyOp>& plan) {
  EXPECT_TRUE(std::is_sorted(plan.begin(), plan.end(),
                             [](const CopyOp& a, const CopyOp& b) {
                               return std::tie(a.dest_segment, a.dest_offset) <
                                      std::tie(b.dest_segment, b.dest_offset);
                             }));
  EXPECT_TRUE(std::all_of(plan.begin(), plan.end(), [](const CopyOp& op) {
    const int64_t least_stride = op.count == 1 ? 0 : op.length;
    return op.length >= 1 && op.count >= 1 &&
           op.source_stride >= least_stride && op.dest_stride >= least_stride;
  }));
}

TEST(PlanCopyPropertyTest, MovesEachElementToItsPlace) {
  Random random(31);
  for (int round = 0; round < 1500; ++round) {
    const Box box = RandomBox(random);
    const std::vector<Fragment> source = RandomFragments(random, box);
    std::vector<Fragment> dest = RandomFragments(random, box);
    if (random.Chance(40)) {
      const int64_t elements = box.planes * box.rows * box.cols;
      const int64_t begin = random.Pick(0, elements);
      dest = Restrict(dest, {begin, random.Pick(begin, elements)});
    }
    Buffers filled;
    Fill(source, kFirstLabel, filled);
    Buffers expected;
    Fill(dest, kFirstLabel, expected);
    const std::vector<CopyOp> plan = PlanCopy(source, dest);
    ExpectTidy(plan);
    Buffers found;
    Execute(plan, filled, found);
    EXPECT_EQ(found, expected);
    if (HasFailure()) {
      return;
    }
  }
}

TEST(PlanCopyPropertyTest, PlansOfAMeshDoNotGrowWithItsRows) {
  Random random(32);
  for (int round = 0; round < 200; ++round) {
    // The same cuts of the columns, of ever more rows.
    const int64_t cols = random.Pick(4, 12);
    const int64_t cut = random.Pick(1, cols - 1);
    const int64_t other = random.Pick(1, cols - 1);
    const auto shards = [cols](int64_t rows, int64_t at) {
      return std::vector<Fragment>{
          {.length = at, .count = rows, .stride = cols},
          {.tensor_offset = at,
           .length = cols - at,
           .count = rows,
           .stride = cols,
           .segment = 1}};
    };
    const auto size = [&](int64_t rows) {
      return PlanCopy(shards(rows, cut), shards(rows, other)).size();
    };
    EXPECT_LE(size(300), 3U);
    EXPECT_EQ(size(300), size(3));
  }
}

// The first element of `dest` that the source does not have exactly once.
std::optional<int64_t> FirstWrong(const std::vector<Fragment>& source,
                                  const std::vector<Fragment>& dest) {
  std::map<int64_t, int> times;
  for (const Slot& slot : Expand(source)) {
    ++times[slot.element];
  }
  for (const Slot& slot : Expand(dest)) {
    if (times[slot.element] != 1) {
      return slot.element;
    }
  }
  return std::nullopt;
}

void LoseOrDoubleOne(Random& random, std::vector<Fragment>& fragments) {
  const auto victim =
      random.Pick(0, static_cast<int64_t>(fragments.size()) - 1);
  if (random.Chance(50)) {
    fragments.push_back(fragments[static_cast<size_t>(victim)]);
  } else {
    fragments.erase(fragments.begin() + static_cast<std::ptrdiff_t>(victim));
  }
}

void ExpectRefusedAt(std::optional<int64_t> element,
                     const std::optional<Error>& error) {
  ASSERT_EQ(error.has_value(), element.has_value());
  if (error.has_value()) {
    EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error->message(),
                StartsWith("elements [" + std::to_string(*element) + ","));
  }
}

TEST(PlanCopyPropertyTest, RefusesExactlyWhatCannotBeFilled) {
  Random random(33);
  int num_refused = 0;
  for (int round = 0; round < 1200; ++round) {
    const Box box = RandomBox(random);
    std::vector<Fragment> source = RandomFragments(random, box);
    LoseOrDoubleOne(random, source);
    const int64_t elements = box.planes * box.rows * box.cols;
    const int64_t begin = random.Pick(0, elements - 1);
    const std::vector<Fragment> dest =
        Restrict(RandomFragments(random, box),
                 {begin, random.Pick(begin + 1, elements)});
    const std::optional<int64_t> wrong = FirstWrong(source, dest);
    num_refused += wrong.has_value() ? 1 : 0;
    ExpectRefusedAt(wrong, ErrorOf([&] { PlanCopy(source, dest); }));
  }
  EXPECT_GT(num_refused, 300);
}

TEST(PlanCopyPropertyTest, ReplicasMatterOnlyWhereTheyAreRead) {
  Random random(34);
  for (int round = 0; round < 400; ++round) {
    const Box box = RandomBox(random);
    const int64_t elements = box.planes * box.rows * box.cols;
    std::vector<Fragment> source = RandomFragments(random, box);
    // A second copy of everything before `split`, in a segment of its own.
    const int64_t split = random.Pick(0, elements - 1);
    if (split > 0) {
      source.push_back({.length = split, .segment = 90});
    }
    const std::vector<Fragment> dest =
        Restrict(RandomFragments(random, box), {split, elements});
    Buffers expected;
    Fill(dest, kFirstLabel, expected);
    Buffers filled;
    Fill(source, kFirstLabel, filled);
    Buffers found;
    Execute(PlanCopy(source, dest), filled, found);
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace muonstore
