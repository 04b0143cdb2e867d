#include "formats/native/block_codec.h"

#include <random>

#include <gtest/gtest.h>

#include "muonstore/error.h"

namespace muonstore::native {
namespace {

std::vector<std::byte> Floats(size_t count) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < count; ++i) {
    const float value = 1.0F + static_cast<float>(i) * 1e-6F;
    const auto parts = std::as_bytes(std::span(&value, 1));
    bytes.insert(bytes.end(), parts.begin(), parts.end());
  }
  return bytes;
}

TEST(NativeBlockCodec, BlocksComeBackAtEveryElementSize) {
  const std::vector<std::byte> block = Floats(4096);
  for (const size_t element : {1U, 2U, 4U, 8U, 16U}) {
    const auto stored = CompressBlock(block, element, 3);
    std::vector<std::byte> out(block.size());
    DecompressBlock(stored, element, out);
    EXPECT_EQ(out, block) << element;
  }
}

TEST(NativeBlockCodec, ShufflingPaysOnFloats) {
  const std::vector<std::byte> block = Floats(4096);
  EXPECT_LT(CompressBlock(block, 4, 3).size() * 3,
            CompressBlock(block, 1, 3).size() * 2);
}

TEST(NativeBlockCodec, AnotherSizeIsDataLoss) {
  const auto stored = CompressBlock(Floats(1024), 4, 1);
  for (const size_t size : {0U, 4092U, 4100U, 8192U}) {
    std::vector<std::byte> out(size);
    EXPECT_THROW(DecompressBlock(stored, 4, out), Error) << size;
  }
}

// The bytes are checked before they come here; should they ever not be, zstd
// must not run beyond its buffers.
TEST(NativeBlockCodec, DamagedBytesAreAnErrorOrOtherBytes) {
  std::mt19937 random(3);
  const auto stored = CompressBlock(Floats(1024), 4, 1);
  std::vector<std::byte> out(4096);
  for (int i = 0; i < 3000; ++i) {
    auto damaged = stored;
    damaged[random() % damaged.size()] ^= std::byte{1} << (random() % 8);
    damaged.resize(random() % 4 == 0 ? random() % damaged.size()
                                     : damaged.size());
    try {
      DecompressBlock(damaged, 4, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    }
  }
}

}  // namespace
}  // namespace muonstore::native
