#include "formats/native/segment_reader.h"

#include <algorithm>

#include "formats/native/block_codec.h"
#include "formats/native/hash.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// From here on the page cache is in the way.
constexpr size_t kLargeBytes = size_t{1} << 20;

}  // namespace

Error BlockDamage(const TagFiles& tag, size_t segment, size_t block,
                  uint64_t found_digest) {
  const Segment& info = tag.layout->segments()[segment];
  const Block& record = tag.blocks->blocks(segment)[block];
  return {ErrorCode::kDataLoss,
          StrCat("block ", block, " of ", info.kind, " is damaged"),
          {.file = tag.rank_path(info.rank),
           .offset_bytes = record.offset_bytes,
           .expected = StrCat("xxh3_64 ", ToHex(record.digest)),
           .found = ToHex(found_digest)}};
}

void SegmentReader::Read(size_t segment, int64_t first_element,
                         std::span<std::byte> out) const {
  const Segment& info = tag_.layout->segments()[segment];
  const auto element = static_cast<uint64_t>(SizeBytes(info.dtype));
  const uint64_t total = tag_.layout->segment_bytes(segment);
  if (first_element < 0 || first_element > info.num_elements ||
      out.size() > total - static_cast<uint64_t>(first_element) * element) {
    throw Error(
        ErrorCode::kInvalidArgument, "the range is outside of the segment",
        {.file = tag_.rank_path(info.rank),
         .expected = StrCat("within ", info.num_elements, " elements"),
         .found = StrCat(out.size(), " bytes from element ", first_element)});
  }
  const uint64_t begin = static_cast<uint64_t>(first_element) * element;
  if (tag_.manifest.compressed) {
    ReadCompressed(segment, begin, out);
  } else {
    ReadPlain(segment, begin, out);
  }
}

void SegmentReader::ReadPlain(size_t segment, uint64_t begin,
                              std::span<std::byte> out) const {
  if (out.empty()) {
    return;
  }
  const auto file =
      files_.Get(tag_.rank_path(tag_.layout->segments()[segment].rank));
  if (out.size() >= kLargeBytes) {
    ReadLarge(*file, segment, begin, out);
    return;
  }
  file->ReadAt(tag_.blocks->blocks(segment)[0].offset_bytes + begin, out);
  CheckPlain(*file, segment, begin, out);
}

void SegmentReader::ReadLarge(RandomAccessFile& file, size_t segment,
                              uint64_t begin, std::span<std::byte> out) const {
  struct Part {
    uint64_t begin;
    std::span<std::byte> out;
    PendingPtr read;
  };
  const uint64_t offset = tag_.blocks->blocks(segment)[0].offset_bytes;
  const uint64_t block_bytes = tag_.blocks->block_bytes();
  std::vector<Part> parts;
  while (!out.empty()) {
    const auto part = out.first(
        std::min<size_t>(out.size(), block_bytes - begin % block_bytes));
    parts.push_back({begin, part, file.StartRead(offset + begin, part)});
    begin += part.size();
    out = out.subspan(part.size());
  }
  // While one is compared, the next are under way.
  for (const Part& part : parts) {
    part.read->Wait();
    CheckPlain(file, segment, part.begin, part.out);
  }
}

void SegmentReader::CheckPlain(RandomAccessFile& file, size_t segment,
                               uint64_t begin,
                               std::span<const std::byte> out) const {
  const auto blocks = tag_.blocks->blocks(segment);
  const uint64_t block_bytes = tag_.blocks->block_bytes();
  const uint64_t end = begin + out.size();
  for (uint64_t b = begin / block_bytes; b * block_bytes < end; ++b) {
    const uint64_t at = b * block_bytes;
    const uint64_t size = blocks[b].stored_bytes;
    if (at >= begin && at + size <= end) {
      const uint64_t digest = Hash64(out.subspan(at - begin, size));
      if (digest != blocks[b].digest) {
        throw BlockDamage(tag_, segment, b, digest);
      }
      checks_.SetWhole({segment, b});
    } else if (checks_.Add({segment, b}, std::max(begin, at) - at,
                           std::min(end, at + size) - at, size)) {
      CheckWholePlain(file, segment, b);
    }
  }
}

void SegmentReader::CheckWholePlain(RandomAccessFile& file, size_t segment,
                                    size_t block) const {
  constexpr uint64_t kPieceBytes = uint64_t{256} << 10;
  const Block& record = tag_.blocks->blocks(segment)[block];
  std::vector<std::byte> piece;
  Hasher64 hasher;
  for (uint64_t at = 0; at < record.stored_bytes; at += piece.size()) {
    piece.resize(std::min(kPieceBytes, record.stored_bytes - at));
    file.ReadAt(record.offset_bytes + at, piece);
    hasher.Update(piece);
  }
  if (hasher.Digest() != record.digest) {
    throw BlockDamage(tag_, segment, block, hasher.Digest());
  }
  checks_.SetWhole({segment, block});
}

void SegmentReader::ReadCompressed(size_t segment, uint64_t begin,
                                   std::span<std::byte> out) const {
  const auto file =
      files_.Get(tag_.rank_path(tag_.layout->segments()[segment].rank));
  const uint64_t block_bytes = tag_.blocks->block_bytes();
  while (!out.empty()) {
    const BlockBytes block = Decompressed(*file, segment, begin / block_bytes);
    const uint64_t at = begin % block_bytes;
    const size_t part = std::min<size_t>(out.size(), block->size() - at);
    std::copy_n(block->begin() + static_cast<std::ptrdiff_t>(at), part,
                out.begin());
    out = out.subspan(part);
    begin += part;
  }
}

SegmentReader::BlockBytes SegmentReader::Decompressed(RandomAccessFile& file,
                                                      size_t segment,
                                                      size_t block) const {
  {
    const std::lock_guard lock(mutex_);
    if (cached_ != nullptr && cached_segment_ == segment &&
        cached_block_ == block) {
      return cached_;
    }
  }
  const Block& record = tag_.blocks->blocks(segment)[block];
  std::vector<std::byte> stored(record.stored_bytes);
  file.ReadAt(record.offset_bytes, stored);
  const uint64_t digest = Hash64(stored);
  if (digest != record.digest) {
    throw BlockDamage(tag_, segment, block, digest);
  }
  const auto bytes = std::make_shared<std::vector<std::byte>>(std::min(
      tag_.blocks->block_bytes(), tag_.layout->segment_bytes(segment)));
  const DType dtype = tag_.layout->segments()[segment].dtype;
  try {
    DecompressBlock(stored, static_cast<size_t>(SizeBytes(dtype)), *bytes);
  } catch (const Error& error) {
    throw error.WithFile(file.path());
  }
  const std::lock_guard lock(mutex_);
  cached_segment_ = segment;
  cached_block_ = block;
  cached_ = bytes;
  return bytes;
}

}  // namespace muonstore::native
