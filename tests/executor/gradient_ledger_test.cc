#include "src/executor/gradient_ledger.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/executor/step_model.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;

class GradientLedgerTest : public ::testing::Test {
 protected:
  GradientLedgerTest()
      : store_(testutil::MakeStepStore(MakeSingleCommunicator(), {})),
        ledger_(store_->impl()) {}

  // All of every parameter once, but for `but`.
  void AdmitAll(int32_t but = -1) {
    const auto parameters = store_->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto parameter = static_cast<int32_t>(i);
      if (parameter == but || store_->kinds(parameter).empty()) continue;
      ledger_.Admit(parameter, {0, parameters[i].shape.num_elements()});
    }
  }

  std::unique_ptr<StateStore> store_;
  GradientLedger ledger_;
};

TEST_F(GradientLedgerTest, CountsMicroBatches) {
  AdmitAll();
  EXPECT_EQ(ledger_.RequireComplete(), 1);
  AdmitAll();
  AdmitAll();
  EXPECT_EQ(ledger_.RequireComplete(), 3);
  ledger_.Clear();
  EXPECT_EQ(CodeOf([&] { ledger_.RequireComplete(); }),
            ErrorCode::kInvalidArgument);
}

TEST_F(GradientLedgerTest, ChunksComeInAnyOrder) {
  AdmitAll(2);
  EXPECT_TRUE(ledger_.Admit(2, {30, 54}).first);
  EXPECT_TRUE(ledger_.Admit(2, {0, 10}).first);
  EXPECT_TRUE(ledger_.Admit(2, {10, 30}).first);
  EXPECT_EQ(ledger_.RequireComplete(), 1);
  EXPECT_FALSE(ledger_.Admit(2, {0, 54}).first);
}

TEST_F(GradientLedgerTest, AnElementThatComesTwiceIsNamed) {
  ledger_.Admit(2, {20, 30});
  for (const ElementRange range :
       {ElementRange{29, 31}, ElementRange{10, 21}, ElementRange{0, 54},
        ElementRange{24, 25}, ElementRange{20, 30}}) {
    const auto again = [&] { ledger_.Admit(2, range); };
    EXPECT_EQ(CodeOf(again), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(again), HasSubstr("mlp.up.weight"));
    EXPECT_THAT(TextOf(again), HasSubstr("twice"));
  }
  // Nothing of these was noted.
  ledger_.Admit(2, {0, 20});
  ledger_.Admit(2, {30, 54});
  AdmitAll(2);
  EXPECT_EQ(ledger_.RequireComplete(), 1);
}

TEST_F(GradientLedgerTest, WhatIsMissingIsNamed) {
  AdmitAll(3);
  const auto complete = [&] { ledger_.RequireComplete(); };
  EXPECT_THAT(TextOf(complete), HasSubstr("mlp.down.weight"));
  EXPECT_THAT(TextOf(complete), HasSubstr("AccumulateZero"));
  ledger_.Admit(3, {0, 62});
  EXPECT_THAT(TextOf(complete), HasSubstr("62 of 63"));
  ledger_.Admit(3, {62, 63});
  EXPECT_EQ(ledger_.RequireComplete(), 1);
}

TEST_F(GradientLedgerTest, AParameterThatIsBehindIsNamed) {
  AdmitAll();
  AdmitAll(5);
  EXPECT_THAT(TextOf([&] { ledger_.RequireComplete(); }),
              HasSubstr("norm.weight"));
}

TEST(GradientLedgerRanksTest, OnlyWhatTheRankOwnsCounts) {
  testutil::RunConnectedRanks(2, [](const auto& communicator) {
    const auto store = testutil::MakeStepStore(communicator, {.stage = 3});
    GradientLedger ledger(store->impl());
    const int64_t first = 27 * communicator->rank();
    const auto admitted = ledger.Admit(2, {20, 40});
    int64_t elements = 0;
    for (const Fragment& fragment : admitted.fragments) {
      EXPECT_GE(fragment.tensor_offset, first);
      elements += fragment.num_elements();
    }
    EXPECT_EQ(elements, communicator->rank() == 0 ? 7 : 13);
  });
}

}  // namespace
}  // namespace muonstore
