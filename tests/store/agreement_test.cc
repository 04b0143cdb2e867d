#include "src/store/agreement.h"

#include <new>
#include <optional>
#include <stdexcept>

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

TEST(AgreementTest, MemoryThatThereIsNotIsAnError) {
  const auto exhausted = Caught([] { throw std::bad_alloc(); });
  ASSERT_TRUE(exhausted.has_value());
  EXPECT_EQ(exhausted->code(), ErrorCode::kResourceExhausted);
  const auto too_long = Caught([] { throw std::length_error("vector"); });
  ASSERT_TRUE(too_long.has_value());
  EXPECT_EQ(too_long->code(), ErrorCode::kResourceExhausted);
  EXPECT_FALSE(Caught([] {}).has_value());
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
