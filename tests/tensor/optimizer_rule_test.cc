#include "muonstore/optimizer_rule.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

TEST(OptimizerRuleTest, MatricesGoToMuon) {
  EXPECT_EQ(DeepSpeedOptimizer("blocks.0.fc1.weight", Shape({9, 6})),
            Optimizer::kMuon);
  EXPECT_EQ(DeepSpeedOptimizer("conv.weight", Shape({8, 3, 3, 3})),
            Optimizer::kMuon);
  EXPECT_EQ(DeepSpeedOptimizer("one.by.one", Shape({1, 1})), Optimizer::kMuon);
}

TEST(OptimizerRuleTest, VectorsGoToAdam) {
  EXPECT_EQ(DeepSpeedOptimizer("fc1.bias", Shape({9})), Optimizer::kAdam);
  EXPECT_EQ(DeepSpeedOptimizer("temperature", Shape(std::vector<int64_t>{})),
            Optimizer::kAdam);
}

TEST(OptimizerRuleTest, EmbeddingsAndHeadsGoToAdamInAnyCase) {
  for (const char* name : {"model.embed_tokens.weight", "wpe_Embedding.weight",
                           "EMBED", "lm_head.weight", "Model.LM_Head.weight"}) {
    EXPECT_EQ(DeepSpeedOptimizer(name, Shape({9, 6})), Optimizer::kAdam)
        << name;
  }
  // Neither word is whole here.
  EXPECT_EQ(DeepSpeedOptimizer("lm.head.weight", Shape({9, 6})),
            Optimizer::kMuon);
}

}  // namespace
}  // namespace muonstore
