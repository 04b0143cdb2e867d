#include "formats/native/text.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

#include "formats/native/file_names.h"
#include "formats/native/hash.h"

namespace muonstore::native {
namespace {

std::string RandomBytes(std::mt19937& random) {
  std::string bytes(random() % 12, '\0');
  for (char& c : bytes) {
    // Half of them special: percent, slash, dot, parts of UTF-8.
    constexpr std::string_view kSpecial = "%/.\xC3\xA4\xE2\x82\xAC\xFF\x01";
    c = random() % 2 == 0 ? kSpecial[random() % kSpecial.size()]
                          : static_cast<char>(random());
  }
  return bytes;
}

TEST(NativeText, EveryNameComesBack) {
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string name = RandomBytes(random);
    EXPECT_EQ(UnescapeText(EscapeText(name)), name);
  }
}

TEST(NativeText, DifferentNamesAreDifferentPathParts) {
  std::mt19937 random(2);
  std::set<std::string> names;
  std::set<std::string> parts;
  for (int i = 0; i < 20000; ++i) {
    const std::string name = RandomBytes(random);
    const std::string part = EscapePathPart(name);
    names.insert(name);
    parts.insert(part);
    EXPECT_FALSE(part.empty());
    EXPECT_EQ(part.find('/'), part.npos);
    EXPECT_NE(part.find_first_not_of('.'), part.npos);
    EXPECT_TRUE(IsPlainText(part));
  }
  EXPECT_EQ(names.size(), parts.size());
}

TEST(NativeText, PlainNamesStayReadable) {
  EXPECT_EQ(EscapeText("blocks.0.fc1.weight"), "blocks.0.fc1.weight");
  EXPECT_EQ(EscapePathPart("blocks.0.fc1.weight"), "blocks.0.fc1.weight");
  EXPECT_EQ(EscapeText("gr\xC3\xB6\xC3\x9F"
                       "e"),
            "gr\xC3\xB6\xC3\x9F"
            "e");
}

TEST(NativeText, WhatIsEscaped) {
  EXPECT_EQ(EscapeText("50%\xFF/"), "50%25%FF/");
  EXPECT_EQ(EscapePathPart("a/b"), "a%2Fb");
  EXPECT_EQ(EscapePathPart("."), "%2E");
  EXPECT_EQ(EscapePathPart(".."), "%2E%2E");
  EXPECT_EQ(EscapePathPart(".a"), ".a");
  EXPECT_EQ(EscapePathPart(""), "%");
  EXPECT_EQ(EscapePathPart(std::string_view("\0\n", 2)), "%00%0A");
}

TEST(NativeText, BrokenEscapesAreRefused) {
  for (const char* text : {"%", "a%", "%4", "%4x", "%G0", "%2f"}) {
    EXPECT_EQ(UnescapeText(text), std::nullopt) << text;
  }
}

TEST(NativeText, PlainText) {
  EXPECT_TRUE(IsPlainText("a/b"));
  EXPECT_FALSE(IsPlainText(""));
  EXPECT_FALSE(IsPlainText(std::string_view("a\0b", 3)));
  EXPECT_FALSE(IsPlainText("\xFF"));
}

TEST(NativeHash, PiecesGiveTheHashOfTheWhole) {
  const std::string text(100000, 'x');
  const auto bytes = std::as_bytes(std::span(text));
  Hasher64 hasher;
  hasher.Update(bytes.first(777));
  hasher.Update(bytes.subspan(777));
  EXPECT_EQ(hasher.Digest(), Hash64(bytes));
  // From the reference implementation: XXH3_64bits of nothing.
  EXPECT_EQ(ToHex(Hash64({})), "2d06800538d394c2");
}

TEST(NativeHash, Hexadecimal) {
  EXPECT_EQ(ParseHex("00000000000000ff"), 255U);
  EXPECT_EQ(ToHex(0xFEDCBA9876543210U), "fedcba9876543210");
  for (const char* text : {"", "ff", "00000000000000FF", "00000000000000f ",
                           "00000000000000fff"}) {
    EXPECT_EQ(ParseHex(text), std::nullopt) << text;
  }
}

TEST(NativeFileNames, CarryTheSaveId) {
  const std::string id = "0123456789abcdef";
  EXPECT_EQ(RankFileName(3, id), "rank-00003.0123456789abcdef.h5");
  EXPECT_EQ(RankFileName(123456, id), "rank-123456.0123456789abcdef.h5");
  for (const std::string& name :
       {RankFileName(0, id), RankFileName(1234567, id), CarriedFileName(7, id),
        ChecksumsName(id), StagedManifestName(id), StagedViewName(id)}) {
    EXPECT_EQ(SaveIdOf(name), id) << name;
  }
}

TEST(NativeFileNames, OtherNamesHaveNone) {
  for (const char* name :
       {"manifest.json", "checkpoint.h5", "rank-00000.h5", "rank-0.h5", "",
        "rank-0000.0123456789abcdef.h5", "rank-0000x.0123456789abcdef.h5",
        "rank-00000.0123456789abcdeF.h5", "rank-00000.0123456789abcdef.h5x",
        "manifest.json.0123", "checksums.", "mp_rank_00_model_states.pt",
        "rank-00000-0123456789abcdef.h5"}) {
    EXPECT_EQ(SaveIdOf(name), "") << name;
  }
}

TEST(NativeFileNames, ATagHasAManifestAndAFileWithAnId) {
  EXPECT_TRUE(IsTagDirectory({"checksums.0123456789abcdef", "manifest.json"}));
  EXPECT_FALSE(IsTagDirectory({"manifest.json"}));
  EXPECT_FALSE(IsTagDirectory({"rank-00000.0123456789abcdef.h5"}));
}

}  // namespace
}  // namespace muonstore::native
