#include "src/base/str.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

TEST(StrTest, StrCatJoinsValuesOfAllTypes) {
  EXPECT_EQ(StrCat("rank ", 3, ": ", std::string("x"), '/', true, " ", 0.5),
            "rank 3: x/true 0.5");
  EXPECT_EQ(StrCat(std::numeric_limits<int64_t>::min()),
            "-9223372036854775808");
  EXPECT_EQ(StrCat(), "");
}

TEST(StrTest, NumbersReadBackAsTheSameDouble) {
  for (const double value : {0.02, 1e-8, 0.1 + 0.2, 1e300, -0.0, 3.0}) {
    EXPECT_EQ(std::stod(FormatNumber(value)), value);
  }
  EXPECT_EQ(FormatNumber(0.02), "0.02");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(FormatNumber(std::nan("")), "nan");
}

TEST(StrTest, PrintableKeepsTextAndEscapesWhatDisturbsATerminal) {
  EXPECT_EQ(Printable("blocks.0/ä€😀"), "blocks.0/ä€😀");
  EXPECT_EQ(Printable("a\x1b[31mb\n"), "a\\x1b[31mb\\x0a");
  EXPECT_EQ(Printable("\x7f"), "\\x7f");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");  // C1 control.
}

TEST(StrTest, PrintableEscapesBrokenUtf8) {
  EXPECT_EQ(Printable("\xc3"), "\\xc3");                    // Cut.
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");           // Overlong.
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // Surrogate.
  EXPECT_EQ(Printable("\xf5\x80\x80\x80"), "\\xf5\\x80\\x80\\x80");
  EXPECT_EQ(Printable(std::string_view("\0a", 2)), "\\x00a");
}

TEST(StrTest, JoinNamesStopsAtTheLimit) {
  const std::vector<std::string> names = {"a", "b", "c", "d"};
  EXPECT_EQ(JoinNames(names, 4), "a, b, c, d");
  EXPECT_EQ(JoinNames(names, 2), "a, b and 2 more");
  EXPECT_EQ(JoinNames({}, 2), "");
}

TEST(StrTest, RangesOfRanks) {
  EXPECT_EQ(FormatRanges(std::vector<int32_t>{}), "");
  EXPECT_EQ(FormatRanges(std::vector<int32_t>{7}), "7");
  EXPECT_EQ(FormatRanges(std::vector<int32_t>{0, 1, 2, 5}), "0-2,5");
  EXPECT_EQ(FormatRanges(std::vector<int32_t>{0, 2, 3, 9, 10}), "0,2-3,9-10");
}

}  // namespace
}  // namespace muonstore
