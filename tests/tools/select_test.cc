#include "tools/ckpt_inspect/select.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore::tools {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

void FillSelectable(MemoryCheckpoint& checkpoint) {
  for (const std::string kind : {"master", "momentum"}) {
    for (const std::string name : {"embed", "blocks.0.fc1", "blocks.1.fc1"}) {
      if (kind == "momentum" && name == "embed") continue;
      checkpoint.Add({.parameter = name, .kind = kind, .shape = {2}},
                     UniqueValues(2));
    }
  }
  checkpoint.mutable_info().aliases = {{"head", "embed"}};
}

// The names that a selection gives, or the error's sentence.
std::vector<std::string> Select(const Selection& selection) {
  MemoryCheckpoint checkpoint;
  FillSelectable(checkpoint);
  std::vector<std::string> names;
  try {
    for (const size_t i : SelectTensors(checkpoint, selection)) {
      names.push_back(checkpoint.tensors()[i].key.ToString());
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    names = {error.message()};
  }
  return names;
}

TEST(SelectTensors, ByGlobAndState) {
  EXPECT_EQ(Select({}).size(), 5U);
  EXPECT_THAT(Select({.param = "*fc1", .state = "momentum"}),
              ElementsAre("blocks.0.fc1/momentum", "blocks.1.fc1/momentum"));
  EXPECT_THAT(Select({.param = "blocks.1*", .state = {}}),
              ElementsAre("blocks.1.fc1/master", "blocks.1.fc1/momentum"));
}

TEST(SelectTensors, StatesByAlias) {
  EXPECT_THAT(Select({.param = "embed", .state = "fp32"}),
              ElementsAre("embed/master"));
  EXPECT_THAT(Select({.param = "blocks.0.fc1", .state = "momentum_buffer"}),
              ElementsAre("blocks.0.fc1/momentum"));
}

TEST(SelectTensors, ATiedNameGivesTheKeptParameter) {
  EXPECT_THAT(Select({.param = "hea*", .state = {}}),
              ElementsAre("embed/master"));
}

TEST(SelectTensors, NothingNamesWhatThereIs) {
  EXPECT_THAT(Select({.param = {}, .state = "exp_avg"}),
              ElementsAre(AllOf(HasSubstr("'exp_avg'"), HasSubstr("'master'"),
                                HasSubstr("'momentum'"))));
  EXPECT_THAT(Select({.param = "blocks.0.fc2", .state = "momentum"}),
              ElementsAre(AllOf(HasSubstr("did you mean 'blocks.0.fc1'"),
                                Not(HasSubstr("embed")))));
  EXPECT_THAT(Select({.param = "embed", .state = "momentum"}),
              ElementsAre(HasSubstr("in state 'momentum'")));
}

TEST(SelectTensor, ByNameOrByAGlobThatMatchesOne) {
  MemoryCheckpoint checkpoint;
  FillSelectable(checkpoint);
  EXPECT_EQ(SelectTensor(checkpoint, {.param = "embed", .state = "fp32"}), 0U);
  EXPECT_EQ(SelectTensor(checkpoint, {.param = "head", .state = "master"}), 0U);
  EXPECT_EQ(SelectTensor(checkpoint, {.param = "emb*", .state = "master"}), 0U);
  EXPECT_EQ(SelectTensor(checkpoint, {.param = "*1.fc1", .state = "momentum"}),
            4U);
  for (const auto& [param, words] :
       {std::pair{"*fc1",
                  "'*fc1' matches 2 parameters, and one at a time is "
                  "dumped: 'blocks.0.fc1', 'blocks.1.fc1'"},
        std::pair{"none*", "no parameter matches 'none*'"}}) {
    try {
      (void)SelectTensor(checkpoint, {.param = param, .state = "master"});
      ADD_FAILURE() << param;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr(words));
    }
  }
}

TEST(SelectTensors, AnEmptyCheckpointIsNoUsageError) {
  const MemoryCheckpoint checkpoint;
  EXPECT_TRUE(SelectTensors(checkpoint, {}).empty());
  EXPECT_THROW(SelectTensors(checkpoint, {.param = "x", .state = {}}), Error);
}

TEST(PairSelector, OneSideIsEnough) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  FillSelectable(a);
  b.Add({.parameter = "head", .kind = "master", .shape = {1}}, UniqueValues(1));
  const PairSelector selector(a, b, {.param = "head", .state = {}});
  EXPECT_TRUE(selector(a.tensors()[0]));  // embed: head is tied to it.
  EXPECT_TRUE(selector(b.tensors()[0]));
  EXPECT_FALSE(selector(a.tensors()[1]));
  EXPECT_THROW(PairSelector(a, b, {.param = "nothing", .state = {}}), Error);
}

}  // namespace
}  // namespace muonstore::tools
