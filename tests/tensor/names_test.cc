#include <gtest/gtest.h>

#include "muonstore/parameter.h"
#include "muonstore/state_kind.h"

namespace muonstore {
namespace {

TEST(StateKindTest, MapsForeignNamesToOurs) {
  EXPECT_EQ(CanonicalStateKind("fp32"), kMaster);
  EXPECT_EQ(CanonicalStateKind("momentum_buffer"), kMomentum);
  EXPECT_EQ(CanonicalStateKind("variance"), kExpAvgSq);
}

TEST(StateKindTest, KeepsEveryOtherName) {
  for (const char* name : {"master", "momentum", "exp_avg", "exp_avg_sq",
                           "weight", "buffer", "max_exp_avg_sq", "", "FP32"}) {
    EXPECT_EQ(CanonicalStateKind(name), name);
  }
}

TEST(TensorKeyTest, RendersAndOrdersByParameterThenKind) {
  const TensorKey key{.parameter = "blocks.0.fc1.weight",
                      .kind = StateKind(kMomentum)};
  EXPECT_EQ(key.ToString(), "blocks.0.fc1.weight/momentum");
  const TensorKey later{.parameter = "blocks.0.fc1.weight", .kind = "weight"};
  const TensorKey last{.parameter = "blocks.1.fc1.weight", .kind = "a"};
  EXPECT_LT(key, later);
  EXPECT_LT(later, last);
}

TEST(OptimizerTest, HasNames) {
  EXPECT_EQ(OptimizerName(Optimizer::kNone), "none");
  EXPECT_EQ(OptimizerName(Optimizer::kMuon), "muon");
  EXPECT_EQ(OptimizerName(Optimizer::kAdam), "adam");
  EXPECT_EQ(OptimizerName(Optimizer::kOther), "other");
}

}  // namespace
}  // namespace muonstore
