#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/load.h"
#include "muonstore/open.h"
#include "muonstore/partitioning.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::Contains;
using testing::Not;

std::unique_ptr<Checkpoint> OpenNamed(const std::string& name) {
  return OpenCheckpoint(
      PosixFileSystem(),
      (testutil::FindDeepSpeedCase(name).folder / "ckpt/step5").string());
}

std::vector<std::string> NamesOf(const std::vector<ParameterSpec>& specs) {
  std::vector<std::string> names;
  names.reserve(specs.size());
  for (const ParameterSpec& spec : specs) names.push_back(spec.name);
  return names;
}

const ParameterSpec& Find(const std::vector<ParameterSpec>& specs,
                          const std::string& name) {
  return *std::find_if(specs.begin(), specs.end(),
                       [&](const auto& spec) { return spec.name == name; });
}

TEST(SpecsOf, GivesTheModelInItsOrder) {
  const auto specs = SpecsOf(*OpenNamed("s2-ws2-bf16-none-base"));
  ASSERT_EQ(specs.size(), 25U);
  EXPECT_EQ(specs[0].name, "embed_tokens.weight");
  EXPECT_EQ(specs[0].optimizer, Optimizer::kAdam);
  EXPECT_EQ(specs[0].group, 1);
  const ParameterSpec& qkv = Find(specs, "blocks.0.attn.qkv.weight");
  EXPECT_EQ(qkv.optimizer, Optimizer::kMuon);
  EXPECT_EQ(qkv.group, 0);
  EXPECT_EQ(qkv.shape, Shape({72, 24}));
  EXPECT_EQ(qkv.weight_dtype, DType::kBF16);
  EXPECT_EQ(qkv.layout, MatrixLayout::Whole());
}

// A store that is partitioned as the run was holds the same flat groups.
TEST(SpecsOf, PartitionsAsTheRunDid) {
  for (const char* name : {"s2-ws2-bf16-none-base", "s3-ws2-bf16-none-base",
                           "s3-ws4-bf16-cpu-base"}) {
    const auto checkpoint = OpenNamed(name);
    const auto specs = SpecsOf(*checkpoint);
    const Partitioning partitioning =
        Partitioning::Build(specs, {.stage = *checkpoint->info().stage,
                                    .num_ranks = checkpoint->info().num_ranks});
    std::vector<std::string> stored;
    for (const CheckpointTensor& tensor : checkpoint->tensors()) {
      if (tensor.key.kind == kMaster) stored.push_back(tensor.key.parameter);
    }
    std::vector<std::string> built;
    for (const FlatGroup& group : partitioning.groups()) {
      for (const int32_t parameter : group.parameters) {
        built.push_back(specs[static_cast<size_t>(parameter)].name);
      }
    }
    EXPECT_EQ(built, stored) << name;
  }
}

TEST(SpecsOf, FrozenParametersAreThereWithoutOptimizer) {
  const auto specs = SpecsOf(*OpenNamed("s3-ws2-bf16-none-frozen"));
  EXPECT_EQ(specs.size(), 25U);
  EXPECT_EQ(Find(specs, "blocks.0.fc1.weight").optimizer, Optimizer::kNone);
}

TEST(SpecsOf, TiedAndBufferNamesAreNoParameters) {
  const auto tied = OpenNamed("s2-ws2-bf16-none-tied");
  ASSERT_FALSE(tied->info().aliases.empty());
  for (const auto& [dropped, kept] : tied->info().aliases) {
    EXPECT_THAT(NamesOf(SpecsOf(*tied)), Not(Contains(dropped)));
    EXPECT_THAT(NamesOf(SpecsOf(*tied)), Contains(kept));
  }
  const auto buffers = OpenNamed("s2-ws2-bf16-none-buffer");
  for (const CheckpointTensor& tensor : buffers->tensors()) {
    if (tensor.key.kind != kBuffer) continue;
    EXPECT_THAT(NamesOf(SpecsOf(*buffers)),
                Not(Contains(tensor.key.parameter)));
  }
}

TEST(SpecsOf, ACheckpointWithoutParametersIsRefused) {
  const testutil::MemoryCheckpoint empty;
  EXPECT_EQ(CodeOf([&] { SpecsOf(empty); }), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace muonstore
