#include "formats/native/rank_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/native/block_codec.h"
#include "formats/native/hdf5_rank_file.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {

RankWriter::RankWriter(const RankWriterContext& context, int32_t rank,
                       std::unique_ptr<WritableFile> file,
                       std::vector<SinkSegment> segments)
    : context_(context),
      rank_(rank),
      file_(std::move(file)),
      segments_(std::move(segments)),
      first_segment_(context.layout.first_segment(rank)) {
  BeginSegment();
}

size_t RankWriter::SegmentBytes() const {
  return context_.layout.segment_bytes(first_segment_ + current_);
}

void RankWriter::BeginSegment() {
  done_bytes_ = 0;
  block_ = 0;
  if (current_ < segments_.size()) {
    RankFile& file = context_.files[static_cast<size_t>(rank_)];
    file.segment_offsets[current_] = position_;
  }
}

size_t RankWriter::RestOfBlock() const {
  const size_t block_bytes = context_.manifest.block_bytes;
  return std::min(block_bytes - done_bytes_ % block_bytes,
                  SegmentBytes() - done_bytes_);
}

void RankWriter::Append(size_t segment, std::span<const std::byte> bytes) {
  if (segment != current_ || segment >= segments_.size() ||
      bytes.size() > SegmentBytes() - done_bytes_) {
    throw Error(ErrorCode::kInternal,
                "segments must be filled in order and not beyond their end",
                {.file = path()});
  }
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), RestOfBlock()));
    if (context_.manifest.compressed) {
      WriteCompressed(part);
    } else {
      WritePlain(part);
    }
    bytes = bytes.subspan(part.size());
  }
  if (done_bytes_ == SegmentBytes()) {
    EndSegment();
  }
}

void RankWriter::WritePlain(std::span<const std::byte> bytes) {
  const size_t rest = RestOfBlock();
  if (!hasher_) {
    hasher_.emplace();
  }
  hasher_->Update(bytes);
  file_->WriteAt(position_ + done_bytes_, bytes);
  done_bytes_ += bytes.size();
  if (bytes.size() == rest) {
    const uint64_t begin = (done_bytes_ - 1) / context_.manifest.block_bytes *
                           context_.manifest.block_bytes;
    EndBlock({.offset_bytes = position_ + begin,
              .stored_bytes = done_bytes_ - begin,
              .digest = hasher_->Digest()});
    hasher_.reset();
  }
}

void RankWriter::WriteCompressed(std::span<const std::byte> bytes) {
  const size_t rest = RestOfBlock();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  done_bytes_ += bytes.size();
  if (bytes.size() < rest) {
    return;
  }
  // HDF5 keeps the last chunk in the size of all others.
  buffer_.resize(
      std::min<size_t>(SegmentBytes(), context_.manifest.block_bytes));
  const auto element =
      static_cast<size_t>(SizeBytes(segments_[current_].dtype));
  const std::vector<std::byte> stored =
      CompressBlock(buffer_, element, context_.zstd_level);
  file_->WriteAt(position_, stored);
  EndBlock({.offset_bytes = position_,
            .stored_bytes = stored.size(),
            .digest = Hash64(stored)});
  position_ += stored.size();
  buffer_.clear();
}

void RankWriter::EndBlock(const Block& block) {
  context_.blocks.Set(first_segment_ + current_, block_++, block);
}

void RankWriter::EndSegment() {
  if (!context_.manifest.compressed) {
    position_ += done_bytes_;
    const uint64_t padding = (kPageBytes - position_ % kPageBytes) % kPageBytes;
    constexpr std::array<std::byte, kPageBytes> kZeros{};
    if (padding > 0) {
      file_->WriteAt(position_, std::span(kZeros).first(padding));
    }
    position_ += padding;
  }
  ++current_;
  BeginSegment();
}

void RankWriter::WriteAround() {
  RankFileContent content{.rank = rank_,
                          .save_id = context_.manifest.save_id,
                          .compressed = context_.manifest.compressed,
                          .zstd_level = context_.zstd_level,
                          .block_bytes = context_.manifest.block_bytes,
                          .payload_end = position_};
  for (size_t i = 0; i < segments_.size(); ++i) {
    const int32_t slot = context_.layout.slots()[first_segment_ + i];
    const auto index = static_cast<size_t>(slot);
    content.segments.push_back(
        {.slot = slot,
         .what = context_.manifest.slots[index],
         .name = context_.slot_names[index],
         .blocks = context_.blocks.blocks(first_segment_ + i)});
  }
  const Hdf5Image image = MakeRankFile(content);
  const auto write = [&](uint64_t begin, uint64_t end) {
    Hasher64 hasher;
    image.ForEach(begin, end,
                  [&](uint64_t offset, std::span<const std::byte> bytes) {
                    hasher.Update(bytes);
                    file_->WriteAt(offset, bytes);
                  });
    return hasher.Digest();
  };
  RankFile& file = context_.files[static_cast<size_t>(rank_)];
  file.size_bytes = image.size_bytes();
  file.tail_offset = position_;
  file.head_digest = write(0, kPageBytes);
  file.tail_digest = write(position_, image.size_bytes());
}

void RankWriter::Close() {
  if (closed_ || current_ != segments_.size()) {
    throw Error(ErrorCode::kInternal, "closed before every segment was full",
                {.file = path()});
  }
  WriteAround();
  file_->Sync();
  file_->Close();
  closed_ = true;
}

}  // namespace muonstore::native
