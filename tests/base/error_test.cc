#include "muonstore/error.h"

#include <string>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

TEST(ErrorTest, TextNamesThePlace) {
  const Error error(ErrorCode::kDataLoss, "the record is cut",
                    {.file = "a.pt",
                     .tensor = "w/master",
                     .offset_bytes = 12,
                     .expected = "8 bytes",
                     .found = "3"});
  EXPECT_STREQ(error.what(),
               "a.pt: tensor w/master: at byte 12: the record is cut "
               "(expected 8 bytes, found 3)");
  EXPECT_EQ(error.message(), "the record is cut");
}

TEST(ErrorTest, HalfAPlaceIsRendered) {
  EXPECT_STREQ(Error(ErrorCode::kInternal, "x").what(), "x");
  EXPECT_STREQ(Error(ErrorCode::kInternal, "x", {.expected = "1"}).what(),
               "x (expected 1)");
  EXPECT_STREQ(Error(ErrorCode::kInternal, "x", {.found = "2"}).what(),
               "x (found 2)");
}

TEST(ErrorTest, ContextIsAddedOnceAndKept) {
  const Error bare(ErrorCode::kNotFound, "gone");
  const Error placed = bare.WithFile("inner").WithFile("outer").WithTensor("t");
  EXPECT_EQ(placed.place().file, "inner");
  EXPECT_EQ(placed.place().tensor, "t");
  EXPECT_EQ(placed.code(), ErrorCode::kNotFound);
  EXPECT_STREQ(placed.what(), "inner: tensor t: gone");
}

TEST(ErrorTest, EveryCodeHasAName) {
  EXPECT_EQ(ErrorCodeName(ErrorCode::kInvalidArgument), "InvalidArgument");
  EXPECT_EQ(ErrorCodeName(ErrorCode::kNotFound), "NotFound");
  EXPECT_EQ(ErrorCodeName(ErrorCode::kDataLoss), "DataLoss");
  EXPECT_EQ(ErrorCodeName(ErrorCode::kUnsupported), "Unsupported");
  EXPECT_EQ(ErrorCodeName(ErrorCode::kResourceExhausted), "ResourceExhausted");
  EXPECT_EQ(ErrorCodeName(ErrorCode::kUnavailable), "Unavailable");
  EXPECT_EQ(ErrorCodeName(ErrorCode::kInternal), "Internal");
}

}  // namespace
}  // namespace muonstore
