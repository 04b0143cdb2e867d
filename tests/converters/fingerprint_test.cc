#include "converters/fingerprint.h"

#include <zlib.h>

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "nlohmann/json.hpp"
#include "src/tensor/float_bits.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testing::HasSubstr;
using testutil::MemoryCheckpoint;

std::vector<float> Values(size_t count, float first) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = first + static_cast<float>(i) * 0.25F;
  }
  return values;
}

// As Python's zlib.crc32, over the whole tensor at once.
std::string Expected(const std::vector<float>& values) {
  const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(values.data()),
                          static_cast<uInt>(values.size() * sizeof(float)));
  char text[9];
  std::snprintf(text, sizeof(text), "%08lx", crc);
  return text;
}

class FingerprintTest : public testing::Test {
 protected:
  FingerprintTest() {
    source_.Add({.parameter = "w", .kind = "master", .shape = {5, 4}}, w_);
    source_.Add({.parameter = "w",
                 .kind = "momentum",
                 .shape = {5, 4},
                 .dtype = DType::kBF16},
                m_);
    source_.Add({.parameter = "b", .kind = "master", .shape = {7}}, b_);
    source_.Add({.parameter = "b", .kind = "exp_avg", .shape = {7}}, b_);
    source_.Add({.parameter = "e", .kind = "master", .shape = {0, 3}},
                std::vector<float>());
  }

  const std::vector<float>& ValuesOf(size_t tensor) const {
    static const std::vector<float> kNone;
    return tensor == 0 ? w_ : tensor == 1 ? m_ : tensor == 4 ? kNone : b_;
  }

  // Feeds a segment in blocks of `block` elements.
  void Feed(Fingerprint& fingerprint, const SinkSegment& segment,
            int64_t block) const {
    const auto item = static_cast<size_t>(SizeBytes(segment.dtype));
    std::vector<std::byte> bytes(static_cast<size_t>(segment.num_elements) *
                                 item);
    for (const SinkPiece& piece : segment.pieces) {
      for (int64_t i = 0; i < piece.length; ++i) {
        const float value = ValuesOf(
            piece.tensor)[static_cast<size_t>(piece.tensor_offset + i)];
        const uint16_t narrow = BF16FromFloat(value);
        std::memcpy(
            bytes.data() + static_cast<size_t>(piece.segment_offset + i) * item,
            item == 2 ? static_cast<const void*>(&narrow) : &value, item);
      }
    }
    SegmentFingerprint watch(fingerprint, segment);
    const size_t step = static_cast<size_t>(block) * item;
    for (size_t at = 0; at < bytes.size(); at += step) {
      watch.Append(
          std::span(bytes).subspan(at, std::min(step, bytes.size() - at)));
    }
  }

  std::vector<float> w_ = Values(20, 1);
  std::vector<float> m_ = Values(20, -3);  // Exact in bf16.
  std::vector<float> b_ = Values(7, 100);
  MemoryCheckpoint source_;
};

TEST_F(FingerprintTest, IsTheCrcOfTheWholeWhateverTheCut) {
  // Two ranks, padding between and behind, momentum as whole matrices on both.
  const SinkSegment rank0{.num_elements = 16,
                          .pieces = {{0, 0, 0, 9}, {2, 0, 12, 3}}};
  const SinkSegment rank1{.num_elements = 16,
                          .pieces = {{0, 9, 0, 11}, {2, 3, 11, 4}}};
  const SinkSegment whole{
      .dtype = DType::kBF16, .num_elements = 20, .pieces = {{1, 0, 0, 20}}};
  const SinkSegment adam{.num_elements = 7, .pieces = {{3, 0, 0, 7}}};
  for (const int64_t block : {1, 3, 4, 16, 100}) {
    Fingerprint fingerprint(source_);
    Feed(fingerprint, rank1, block);  // Ranks in any order.
    Feed(fingerprint, whole, block);
    Feed(fingerprint, rank0, block);
    Feed(fingerprint, adam, block);
    Feed(fingerprint, whole, block);
    const auto json = nlohmann::json::parse(fingerprint.ToJson());
    EXPECT_EQ(json["parameters"].size(), 3U);
    EXPECT_EQ(json["parameters"][0],
              (nlohmann::json{{"name", "w"},
                              {"num_elements", 20},
                              {"master", Expected(w_)},
                              {"momentum", Expected(m_)}}));
    EXPECT_EQ(
        json["parameters"][1],
        (nlohmann::json{
            {"name", "b"}, {"num_elements", 7}, {"master", Expected(b_)}}));
    EXPECT_EQ(json["parameters"][2]["master"], "00000000");
  }
}

TEST_F(FingerprintTest, APartThatNeverPassedIsAnError) {
  Fingerprint fingerprint(source_);
  const SinkSegment rank1{.num_elements = 11, .pieces = {{0, 9, 0, 11}}};
  Feed(fingerprint, rank1, 4);
  try {
    fingerprint.ToJson();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr("w/master"));
  }
  const std::vector<SinkLoss> lost = {{.kind = "x", .tensors = {0, 1, 2, 4}}};
  EXPECT_EQ(nlohmann::json::parse(fingerprint.ToJson(lost))["parameters"],
            nlohmann::json::array());
}

}  // namespace
}  // namespace muonstore
