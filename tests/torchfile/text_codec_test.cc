#include "formats/torchfile/text_codec.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

namespace muonstore::torchfile {
namespace {

TEST(TextCodec, Utf8) {
  for (const char* good : {"", "a", "\u0080", "\u07ff", "\u0800", "\uffff",
                           "\U00010000", "\U0010ffff", "\xed\xa0\x80"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf",
        "\xf0\x80\x80\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5",
        "\xc3", "\xe2\x82", "\xf0\x9f\x98", "a\xff"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
  }
}

TEST(TextCodec, Latin1) {
  std::string all;
  std::string utf8;
  for (int c = 0; c < 256; ++c) {
    all += static_cast<char>(c);
    if (c < 128) {
      utf8 += static_cast<char>(c);
    } else {
      utf8 += static_cast<char>(0xC0 | (c >> 6));
      utf8 += static_cast<char>(0x80 | (c & 63));
    }
  }
  EXPECT_EQ(EncodeLatin1(utf8), all);
  EXPECT_EQ(EncodeLatin1("\u0100"), std::nullopt);
  EXPECT_EQ(EncodeLatin1("a\u20ac"), std::nullopt);
}

// Schoolbook: the decimal digits of a two's complement number.
std::string ToDecimal(std::string bytes) {
  const bool negative = (static_cast<unsigned char>(bytes.back()) & 0x80u) != 0;
  if (negative) {
    int carry = 1;
    for (char& byte : bytes) {
      const int value = (~static_cast<unsigned char>(byte) & 0xFF) + carry;
      byte = static_cast<char>(value & 0xFF);
      carry = value >> 8;
    }
  }
  std::string digits;
  for (bool nonzero = true; nonzero;) {
    int rest = 0;
    nonzero = false;
    for (size_t i = bytes.size(); i-- > 0;) {
      const int value = rest * 256 + static_cast<unsigned char>(bytes[i]);
      bytes[i] = static_cast<char>(value / 10);
      rest = value % 10;
      nonzero |= bytes[i] != 0;
    }
    digits.insert(digits.begin(), static_cast<char>('0' + rest));
  }
  return (negative ? "-" : "") + digits;
}

TEST(TextCodec, DecimalsOfAllLengths) {
  std::mt19937 random(3);
  for (size_t length = 1; length < 120; ++length) {
    std::string digits;
    for (size_t i = 0; i < length; ++i) {
      digits += static_cast<char>('0' + random() % 10);
    }
    digits[0] = static_cast<char>('1' + random() % 9);
    EXPECT_EQ(ToDecimal(*DecodeDecimal(digits)), digits);
    EXPECT_EQ(ToDecimal(*DecodeDecimal("-" + digits)), "-" + digits);
  }
  EXPECT_EQ(ToDecimal(*DecodeDecimal("+000")), "0");
  EXPECT_TRUE(DecodeDecimal(std::string(kMaxDecimalDigits, '9')).has_value());
  for (const char* bad : {"", "-", "+", "1a", " 1", "1 ", "--1", "0x1"}) {
    EXPECT_FALSE(DecodeDecimal(bad).has_value()) << bad;
  }
}

TEST(TextCodec, StringLiterals) {
  EXPECT_EQ(DecodeStringLiteral("'a\\tb\\\\c\\\"\\''"), "a\tb\\c\"'");
  EXPECT_EQ(DecodeStringLiteral("'\\0\\12\\3777'"), std::string("\0\n\xff"
                                                                "7",
                                                                4));
  EXPECT_EQ(DecodeStringLiteral("'\\q'"), "\\q");
  EXPECT_EQ(DecodeStringLiteral("''"), "");
  for (const char* bad : {"", "'", "'a\"", "a", "'\\'", "'\\x'", "'\\xg0'"}) {
    EXPECT_EQ(DecodeStringLiteral(bad), std::nullopt) << bad;
  }
}

TEST(TextCodec, RawUnicodeEscapes) {
  EXPECT_EQ(DecodeRawUnicodeEscape("a\\u2603\\U0001F600\\n\\"),
            "a\u2603\U0001F600\\n\\");
  EXPECT_EQ(DecodeRawUnicodeEscape("\xe9\\u0041\\ud800"),
            "\u00e9A\xed\xa0\x80");
  EXPECT_EQ(DecodeRawUnicodeEscape("\\u12"), std::nullopt);
  EXPECT_EQ(DecodeRawUnicodeEscape("\\u12g4"), std::nullopt);
  EXPECT_EQ(DecodeRawUnicodeEscape("\\UFFFFFFFF"), std::nullopt);
}

}  // namespace
}  // namespace muonstore::torchfile
