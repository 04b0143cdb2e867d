// What lies beside the tensors comes back as it was, without the tensors.
#include <set>

#include <gtest/gtest.h>

#include "formats/native/checkpoint.h"
#include "formats/native/verify.h"
#include "tests/native/carried_checkpoint.h"
#include "tests/native/compare.h"
#include "tests/native/save.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

using torchfile::Value;
using torchfile::ValueType;

// Both trees side by side; a tensor of `from` must be None in `to`.
class TreeComparison {
 public:
  void Run(const Value& from, const Value& to) {
    if (!seen_.insert(from.id()).second) {
      return;
    }
    if (from.is(ValueType::kTensor)) {
      EXPECT_TRUE(to.is_none());
      ++num_tensors;
      return;
    }
    ASSERT_EQ(from.type(), to.type()) << from.Describe() << to.Describe();
    ++num_values;
    if (from.is(ValueType::kDict)) {
      ASSERT_EQ(from.size(), to.size());
      for (size_t i = 0; i < from.size(); ++i) {
        Run(from.entry(i).first, to.entry(i).first);
        Run(from.entry(i).second, to.entry(i).second);
      }
    } else if (from.is(ValueType::kList) || from.is(ValueType::kTuple)) {
      ASSERT_EQ(from.size(), to.size());
      for (size_t i = 0; i < from.size(); ++i) {
        Run(from.at(i), to.at(i));
      }
    } else if (!from.is(ValueType::kObject)) {
      EXPECT_EQ(from.Describe(), to.Describe());
    }
  }

  int num_tensors = 0;
  int num_values = 0;

 private:
  std::set<torchfile::NodeId> seen_;
};

TEST(NativeCarried, TreesOfEveryRankComeBackWithoutTensors) {
  const testutil::Scratch scratch;
  const auto source = SmallCarriedCheckpoint();
  const TargetLayout layout = LayoutOf(*source, {.num_ranks = 3});
  const auto fs = PosixFileSystem();
  const std::string path =
      Save(fs, (scratch / "root").string(), {.tag = "tag"}, *source, layout);
  const auto copy = NativeCheckpoint::Open(fs, path, {});
  ExpectSameTensors(*source, *copy);
  ASSERT_NE(copy->carried_state(), nullptr);
  ASSERT_EQ(copy->carried_state()->num_ranks(), 2);

  const auto expected = source->carried_state()->rank(0).model_states;
  const auto rank0 = copy->carried_state()->rank(0);
  ASSERT_TRUE(rank0.model_states.has_value());
  EXPECT_FALSE(rank0.optim_states.has_value());
  TreeComparison comparison;
  comparison.Run(expected->value(), rank0.model_states->value());
  EXPECT_GT(comparison.num_tensors, 10);
  EXPECT_GT(comparison.num_values, 50);

  const auto rank1 = copy->carried_state()->rank(1);
  EXPECT_FALSE(rank1.model_states.has_value());
  EXPECT_TRUE(rank1.optim_states.has_value());
  EXPECT_TRUE(VerifyTag(fs, path, {}).whole());
}

TEST(NativeCarried, ACopyOfACopyCarriesThem) {
  const testutil::Scratch scratch;
  const auto fs = PosixFileSystem();
  const auto source = SmallCarriedCheckpoint();
  const std::string root = (scratch / "root").string();
  const auto first = NativeCheckpoint::Open(
      fs, Save(fs, root, {.tag = "a"}, *source, LayoutOf(*source, {})), {});
  const auto second = NativeCheckpoint::Open(
      fs, Save(fs, root, {.tag = "b"}, *first, LayoutOf(*first, {})), {});
  ASSERT_NE(second->carried_state(), nullptr);
  TreeComparison comparison;
  comparison.Run(source->carried_state()->rank(1).optim_states->value(),
                 second->carried_state()->rank(1).optim_states->value());
  EXPECT_GT(comparison.num_tensors, 10);
}

TEST(NativeCarried, NothingToCarryIsNoFile) {
  const testutil::Scratch scratch;
  const auto fs = PosixFileSystem();
  const auto source = SmallCarriedCheckpoint();
  const auto plain =
      NativeCheckpoint::Open(fs,
                             Save(fs, (scratch / "root").string(), {.tag = "a"},
                                  *source, LayoutOf(*source, {})),
                             {});
  EXPECT_EQ(plain->info().num_files, 6);  // Two of them carried.
}

}  // namespace
}  // namespace muonstore::native
