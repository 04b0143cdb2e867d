#include "formats/native/block_table.h"

#include <limits>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

constexpr std::string_view kMagic = "muonblk1";
constexpr size_t kRecordBytes = 24;

uint64_t BlocksOf(uint64_t segment_bytes, uint64_t block_bytes) {
  return segment_bytes / block_bytes +
         (segment_bytes % block_bytes != 0 ? 1 : 0);
}

void AppendU64(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i, value >>= 8) {
    out += static_cast<char>(value & 0xFF);
  }
}

uint64_t ReadU64(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 8; i-- > 0;) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

uint64_t BlockTable::FileBytes(const Layout& layout, uint64_t block_bytes) {
  // Far from any real table, and no sum of this many overflows.
  constexpr uint64_t kMaxBlocks = uint64_t{1} << 40;
  uint64_t count = 0;
  for (size_t i = 0; i < layout.segments().size(); ++i) {
    count += BlocksOf(layout.segment_bytes(i), block_bytes);
    if (count > kMaxBlocks) {
      throw Error(ErrorCode::kDataLoss,
                  "the manifest's segments are larger than any disk");
    }
  }
  return kMagic.size() + count * kRecordBytes;
}

BlockTable::BlockTable(const Layout& layout, uint64_t block_bytes)
    : block_bytes_(block_bytes) {
  size_t count = 0;
  first_.push_back(0);
  for (size_t i = 0; i < layout.segments().size(); ++i) {
    count += BlocksOf(layout.segment_bytes(i), block_bytes);
    first_.push_back(count);
  }
  blocks_.resize(count);
}

std::span<const Block> BlockTable::blocks(size_t segment) const {
  return std::span(blocks_).subspan(first_[segment],
                                    first_[segment + 1] - first_[segment]);
}

void BlockTable::Set(size_t segment, size_t block, const Block& value) {
  blocks_[first_[segment] + block] = value;
}

std::string BlockTable::Encode() const {
  std::string text(kMagic);
  text.reserve(kMagic.size() + blocks_.size() * kRecordBytes);
  for (const Block& block : blocks_) {
    AppendU64(text, block.offset_bytes);
    AppendU64(text, block.stored_bytes);
    AppendU64(text, block.digest);
  }
  return text;
}

void BlockTable::Decode(const std::string& text) {
  std::string_view rest = text;
  if (rest.size() != kMagic.size() + blocks_.size() * kRecordBytes ||
      !rest.starts_with(kMagic)) {
    throw Error(ErrorCode::kDataLoss, "is no table of checksums");
  }
  rest.remove_prefix(kMagic.size());
  for (Block& block : blocks_) {
    block = {.offset_bytes = ReadU64(rest),
             .stored_bytes = ReadU64(rest.substr(8)),
             .digest = ReadU64(rest.substr(16))};
    rest.remove_prefix(kRecordBytes);
  }
}

}  // namespace muonstore::native
