#include "tools/ckpt_inspect/row_range.h"

#include <gtest/gtest.h>

#include "muonstore/error.h"

namespace muonstore::tools {
namespace {

// "begin end", or "error".
std::string Rows(const std::string& text, int64_t num_rows = 10) {
  try {
    const RowRange rows = ParseRows(text, num_rows);
    return std::to_string(rows.begin) + " " + std::to_string(rows.end);
  } catch (const Error& error) {
    return error.code() == ErrorCode::kInvalidArgument ? "error" : "?";
  }
}

TEST(ParseRows, AsInPython) {
  EXPECT_EQ(Rows(""), "0 10");
  EXPECT_EQ(Rows(":"), "0 10");
  EXPECT_EQ(Rows("2:5"), "2 5");
  EXPECT_EQ(Rows(":5"), "0 5");
  EXPECT_EQ(Rows("5:"), "5 10");
  EXPECT_EQ(Rows("-3:"), "7 10");
  EXPECT_EQ(Rows(":-3"), "0 7");
  EXPECT_EQ(Rows("-3:-1"), "7 9");
  EXPECT_EQ(Rows("4:4"), "4 4");
  EXPECT_EQ(Rows("10:10"), "10 10");
  EXPECT_EQ(Rows(":", 0), "0 0");
}

TEST(ParseRows, RowsThatAreNotThereAreErrors) {
  for (const char* text : {"0:11", "11:", "-11:", ":-11", "5:2", "-1:-3"}) {
    EXPECT_EQ(Rows(text), "error") << text;
  }
}

TEST(ParseRows, OnlyTwoWholeNumbers) {
  for (const char* text : {"5", "a:b", "1:2:3", "1.5:2", " 1:2", "1:2 ",
                           "99999999999999999999:", "--1:2"}) {
    EXPECT_EQ(Rows(text), "error") << text;
  }
}

}  // namespace
}  // namespace muonstore::tools
