// What one rank says, all ranks hear.

#include "src/checkpoint/shared_error.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/store/store_ranks.h"

namespace muonstore {
namespace {

TEST(SharedError, IsNothingWhereNoRankHasOne) {
  testutil::RunConnectedRanks(3, [](const auto& ranks) {
    EXPECT_FALSE(SharedError(*ranks, std::nullopt).has_value());
  });
}

TEST(SharedError, IsTheFirstRanksAndItsOwnWithThoseThatHaveOne) {
  testutil::RunConnectedRanks(3, [](const auto& ranks) {
    std::optional<Error> own;
    if (ranks->rank() == 1) {
      own.emplace(ErrorCode::kDataLoss, "it: 5:3 broke",
                  ErrorPlace{.file = "a:b",
                             .tensor = "w/master",
                             .offset_bytes = 0,
                             .expected = "",
                             .found = "12:"});
    }
    if (ranks->rank() == 2) own.emplace(ErrorCode::kNotFound, "other");
    const auto error = SharedError(*ranks, own);
    ASSERT_TRUE(error.has_value());
    if (ranks->rank() == 2) {
      EXPECT_EQ(error->code(), ErrorCode::kNotFound);
      return;
    }
    EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
    EXPECT_EQ(error->message(), ranks->rank() == 1
                                    ? "it: 5:3 broke"
                                    : "on rank 1: it: 5:3 broke");
    EXPECT_EQ(error->place().file, "a:b");
    EXPECT_EQ(error->place().tensor, "w/master");
    EXPECT_EQ(error->place().offset_bytes, 0U);
    EXPECT_EQ(error->place().expected, "");
    EXPECT_EQ(error->place().found, "12:");
  });
}

TEST(BroadcastText, TakesAnyBytes) {
  testutil::RunConnectedRanks(2, [](const auto& ranks) {
    const std::string text("a\0b", 3);
    EXPECT_EQ(BroadcastText(*ranks, ranks->rank() == 1 ? text : "zzzzz", 1),
              text);
    EXPECT_EQ(BroadcastText(*ranks, ranks->rank() == 0 ? "" : "zzzzz", 0), "");
  });
}

}  // namespace
}  // namespace muonstore
