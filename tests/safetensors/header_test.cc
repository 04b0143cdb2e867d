// The header, as it is written and as it must not be read.
#include "formats/safetensors/header.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/scratch.h"

#include <nlohmann/json.hpp>

namespace muonstore::safetensors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HeaderTest : public testing::Test {
 protected:
  // A file of this JSON and so many bytes of tensors.
  Header Read(const std::string& json, size_t data_bytes) const {
    std::string file;
    for (size_t i = 0; i < 8; ++i) {
      file += static_cast<char>(json.size() >> (8 * i) & 0xFF);
    }
    return ReadRaw(file + json + std::string(data_bytes, 'x'));
  }
  Header ReadRaw(const std::string& bytes) const {
    testutil::WriteBytes(scratch_ / "f", bytes);
    const auto file = PosixFileSystem()->OpenForRead((scratch_ / "f").string());
    return ReadHeader(*file);
  }

  testutil::Scratch scratch_;
};

TEST_F(HeaderTest, WorkedExampleOfThePage) {
  const std::vector<TensorEntry> entries = {
      {.name = "b", .shape = Shape({2, 1}), .end_bytes = 8},
      {.name = "a",
       .dtype = DType::kBF16,
       .shape = Shape(),
       .begin_bytes = 8,
       .end_bytes = 10}};
  const std::string header = WriteHeader(entries);
  EXPECT_EQ(header,
            std::string("\x90\0\0\0\0\0\0\0", 8) +
                R"({"__metadata__":{"format":"pt"},)"
                R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                R"("a":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})"
                "   ");
  const Header read = ReadRaw(header + std::string(10, 'x'));
  EXPECT_EQ(read.data_offset_bytes, header.size());
  ASSERT_EQ(read.entries.size(), 2U);
  EXPECT_EQ(read.entries[0].name, "b");
  EXPECT_EQ(read.entries[1].dtype, DType::kBF16);
  EXPECT_EQ(read.entries[1].begin_bytes, 8U);
}

TEST_F(HeaderTest, WideDTypesComeFirstThenNames) {
  const TensorEntry wide{.name = "z", .dtype = DType::kF32};
  const TensorEntry narrow{.name = "a", .dtype = DType::kBF16};
  const TensorEntry other{.name = "b", .dtype = DType::kBF16};
  EXPECT_TRUE(IsBefore(wide, narrow));
  EXPECT_FALSE(IsBefore(narrow, wide));
  EXPECT_TRUE(IsBefore(narrow, other));
  EXPECT_FALSE(IsBefore(narrow, narrow));
}

TEST_F(HeaderTest, NamesMustBeUtf8AndNotReserved) {
  RequireWritable("ok \xC3\xA9", DType::kF32);
  EXPECT_THAT(MessageOf([] { RequireWritable("bad\xFF", DType::kF32); }),
              HasSubstr("UTF-8"));
  EXPECT_THAT(MessageOf([] { RequireWritable("\xED\xA0\x80", DType::kF32); }),
              HasSubstr("UTF-8"));
  EXPECT_THAT(MessageOf([] { RequireWritable("__metadata__", DType::kF32); }),
              HasSubstr("reserves"));
  EXPECT_THAT(MessageOf([] { RequireWritable("x", DType::kC128); }),
              HasSubstr("no dtype c128"));
}

TEST_F(HeaderTest, FourBitTensorsCountElementsInTheFile) {
  const std::vector<TensorEntry> entries = {{.name = "q",
                                             .dtype = DType::kF4E2M1FNx2,
                                             .shape = Shape({3, 4}),
                                             .end_bytes = 12}};
  const std::string header = WriteHeader(entries);
  EXPECT_THAT(header, HasSubstr("\"shape\":[3,8]"));
  EXPECT_EQ(ReadRaw(header + std::string(12, 'x')).entries[0].shape,
            Shape({3, 4}));
}

std::string Entry(const std::string& offsets,
                  const std::string& shape = "[2]") {
  return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

TEST_F(HeaderTest, DamageIsDataLoss) {
  const struct {
    std::string json;
    size_t data_bytes;
  } cases[] = {
      {"", 0},
      {"[]", 0},
      {"{", 0},
      {"{\"a\":1}", 0},
      {"{\"a\":{}}", 0},
      {"{\"a\":" + Entry("[0,8]") + "}", 7},
      {"{\"a\":" + Entry("[0,8]") + "}", 9},
      {"{\"a\":" + Entry("[4,12]") + "}", 12},
      {"{\"a\":" + Entry("[8,0]") + "}", 8},
      {"{\"a\":" + Entry("[0,8,8]") + "}", 8},
      {"{\"a\":" + Entry("[0,12]") + "}", 12},
      {"{\"a\":" + Entry("[0,8]", "[-2]") + "}", 8},
      {"{\"a\":" + Entry("[0,8]", "[2.5]") + "}", 8},
      {"{\"a\":" + Entry("[0,8]", "[4611686018427387904,8]") + "}", 8},
      {"{\"a\":" + Entry("[0,8]") + ",\"b\":" + Entry("[4,12]") + "}", 12},
      {"{\"a\":" + Entry("[0,8]") + ",\"b\":" + Entry("[0,8]") + "}", 8},
      {"{\"a\":" + Entry("[0,99999999999999999999]") + "}", 8},
  };
  for (const auto& one : cases) {
    const auto error = ErrorOf([&] { Read(one.json, one.data_bytes); });
    ASSERT_TRUE(error.has_value()) << one.json;
    EXPECT_EQ(error->code(), ErrorCode::kDataLoss) << one.json;
    EXPECT_THAT(error->place().file, HasSubstr("/f")) << one.json;
  }
  EXPECT_EQ(CodeOf([&] { ReadRaw("\x01"); }), ErrorCode::kDataLoss);
  EXPECT_EQ(CodeOf([&] { ReadRaw(std::string(8, '\xFF')); }),
            ErrorCode::kDataLoss);
}

TEST_F(HeaderTest, AnUnknownDTypeIsUnsupported) {
  EXPECT_EQ(CodeOf([&] {
              Read(R"({"a":{"dtype":"F6","shape":[1],"data_offsets":[0,1]}})",
                   1);
            }),
            ErrorCode::kUnsupported);
}

TEST_F(HeaderTest, EveryMutationIsAnErrorOrAHeader) {
  const std::vector<TensorEntry> entries = {
      {.name = "a", .shape = Shape({2}), .end_bytes = 8},
      {.name = "b", .shape = Shape({1}), .begin_bytes = 8, .end_bytes = 12}};
  const std::string good = WriteHeader(entries) + std::string(12, 'x');
  int num_errors = 0;
  for (size_t at = 0; at < good.size() - 12; ++at) {
    for (const int flip : {1, 2, 0x80}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      num_errors += ErrorOf([&] { ReadRaw(bad); }).has_value() ? 1 : 0;
    }
  }
  EXPECT_GT(num_errors, 100);
}

}  // namespace
}  // namespace muonstore::safetensors
