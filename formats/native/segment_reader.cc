#include "formats/native/segment_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "formats/native/block_codec.h"
#include "formats/native/hash.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// From here on the page cache is in the way.
constexpr size_t kLargeBytes = size_t{1} << 20;
constexpr size_t kCacheBytes = size_t{16} << 20;

size_t MaxCachedBlocks(const TagFiles& tag) {
  return std::max<size_t>(2, kCacheBytes / tag.manifest.block_bytes);
}

void ReadBytes(RandomAccessFile& file, uint64_t offset_bytes,
               std::span<std::byte> out) {
  if (out.size() >= kLargeBytes) {
    file.StartRead(offset_bytes, out)->Wait();
  } else {
    file.ReadAt(offset_bytes, out);
  }
}

}  // namespace

SegmentReader::SegmentReader(const TagFiles& tag)
    : tag_(tag), files_(*tag.fs), cache_(MaxCachedBlocks(tag)) {}

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
  if (out.empty()) return;
  const auto file = files_.Get(tag_.rank_path(info.rank));
  std::vector<Part> parts =
      Split(segment, static_cast<uint64_t>(first_element) * element, out);
  if (tag_.manifest.compressed) {
    ReadCompressed(*file, parts);
  } else {
    ReadPlain(*file, std::move(parts));
  }
}

std::vector<SegmentReader::Part> SegmentReader::Split(
    size_t segment, uint64_t begin, std::span<std::byte> out) const {
  const uint64_t block_bytes = tag_.blocks->block_bytes();
  std::vector<Part> parts;
  while (!out.empty()) {
    Part part;
    part.id = {segment, begin / block_bytes};
    part.begin = begin % block_bytes;
    const uint64_t size = BlockBytes(part.id);
    part.out = out.first(std::min<size_t>(out.size(), size - part.begin));
    part.is_whole = part.out.size() == ChunkBytes(part.id);
    begin += part.out.size();
    out = out.subspan(part.out.size());
    parts.push_back(std::move(part));
  }
  return parts;
}

size_t SegmentReader::BytesOf(const std::vector<Part>& parts) {
  return std::accumulate(
      parts.begin(), parts.end(), size_t{0},
      [](size_t sum, const Part& part) { return sum + part.out.size(); });
}

void SegmentReader::ReadPlain(RandomAccessFile& file,
                              std::vector<Part> parts) const {
  const bool is_large = BytesOf(parts) >= kLargeBytes;
  for (Part& part : parts) {
    part.is_direct = part.is_whole || !cache_.IsTheWay(part.id);
    if (!part.is_direct) continue;
    const uint64_t offset = BlockOf(part.id).offset_bytes + part.begin;
    if (is_large) {
      part.read = file.StartRead(offset, part.out);
    } else {
      file.ReadAt(offset, part.out);
    }
  }
  // While one is compared, the next are under way.
  for (Part& part : parts) {
    if (part.read != nullptr) part.read->Wait();
    if (part.is_whole) {
      Compare(part.id, part.out);
      cache_.SetCompared(part.id);
    } else if (!part.is_direct) {
      Copy(part, cache_.Get(part.id, [&] { return LoadPlain(file, part.id); }));
    }
  }
}

void SegmentReader::ReadCompressed(RandomAccessFile& file,
                                   const std::vector<Part>& parts) const {
  for (const Part& part : parts) {
    if (part.is_whole) {
      Decompress(file, part.id, part.out);
      continue;
    }
    Copy(part, cache_.Get(part.id, [&] {
      AlignedBytes bytes(ChunkBytes(part.id));
      Decompress(file, part.id, bytes.span());
      return bytes;
    }));
  }
}

void SegmentReader::Copy(const Part& part, const BlockCache::Bytes& block) {
  const auto from = block->span().subspan(part.begin, part.out.size());
  std::copy(from.begin(), from.end(), part.out.begin());
}

AlignedBytes SegmentReader::LoadPlain(RandomAccessFile& file,
                                      BlockId id) const {
  AlignedBytes bytes(ChunkBytes(id));
  ReadBytes(file, BlockOf(id).offset_bytes, bytes.span());
  Compare(id, bytes.span());
  return bytes;
}

void SegmentReader::Decompress(RandomAccessFile& file, BlockId id,
                               std::span<std::byte> out) const {
  const Block& block = BlockOf(id);
  const AlignedBytes stored(block.stored_bytes);
  ReadBytes(file, block.offset_bytes, stored.span());
  Compare(id, stored.span());
  const DType dtype = tag_.layout->segments()[id.first].dtype;
  try {
    DecompressBlock(stored.span(), static_cast<size_t>(SizeBytes(dtype)), out);
  } catch (const Error& error) {
    throw error.WithFile(file.path());
  }
}

void SegmentReader::Compare(BlockId id,
                            std::span<const std::byte> stored) const {
  const uint64_t digest = Hash64(stored);
  if (digest != BlockOf(id).digest) {
    throw BlockDamage(tag_, id.first, id.second, digest);
  }
}

const Block& SegmentReader::BlockOf(BlockId id) const {
  return tag_.blocks->blocks(id.first)[id.second];
}

uint64_t SegmentReader::BlockBytes(BlockId id) const {
  const uint64_t block_bytes = tag_.blocks->block_bytes();
  return std::min(block_bytes, tag_.layout->segment_bytes(id.first) -
                                   id.second * block_bytes);
}

uint64_t SegmentReader::ChunkBytes(BlockId id) const {
  return tag_.manifest.compressed
             ? std::min(tag_.blocks->block_bytes(),
                        tag_.layout->segment_bytes(id.first))
             : BlockBytes(id);
}

}  // namespace muonstore::native
