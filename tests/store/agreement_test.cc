#include "src/store/agreement.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::RunConnectedRanks;

TEST(AgreementTest, EqualDigestsGoOn) {
  RunConnectedRanks(3, [](const auto& communicator) {
    for (const int64_t digest : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
      RequireAgreement(*communicator, "the test", std::nullopt, digest);
    }
  });
}

TEST(AgreementTest, OneDigestThatDiffersStopsAll) {
  RunConnectedRanks(4, [](const auto& communicator) {
    const int64_t digest = communicator->rank() == 2 ? 5 : -7;
    const auto agree = [&] {
      RequireAgreement(*communicator, "the test", std::nullopt, digest);
    };
    EXPECT_EQ(CodeOf(agree), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(agree), HasSubstr("the test"));
  });
}

TEST(AgreementTest, EveryRankHearsOfTheFirstThatFailed) {
  RunConnectedRanks(4, [](const auto& communicator) {
    const bool fails = communicator->rank() == 1 || communicator->rank() == 3;
    const auto agree = [&] {
      std::optional<Error> error;
      if (fails) error = Error(ErrorCode::kNotFound, "mine");
      RequireAgreement(*communicator, "the test", error, 0);
    };
    EXPECT_EQ(CodeOf(agree),
              fails ? ErrorCode::kNotFound : ErrorCode::kUnavailable);
    EXPECT_THAT(TextOf(agree), HasSubstr(fails ? "mine" : "rank 1"));
  });
}

TEST(AgreementTest, DigestsSeeOrderAndBoundaries) {
  EXPECT_NE(Digest().Add("ab").Add("c").value(),
            Digest().Add("a").Add("bc").value());
  EXPECT_NE(Digest().Add(int64_t{1}).Add(int64_t{2}).value(),
            Digest().Add(int64_t{2}).Add(int64_t{1}).value());
  EXPECT_NE(Digest().Add(0.0).value(), Digest().Add(-0.0).value());
  EXPECT_EQ(Digest().Add("x").Add(0.5).value(),
            Digest().Add("x").Add(0.5).value());
}

}  // namespace
}  // namespace muonstore
