#include "formats/native/rank_writer.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "formats/native/hdf5_rank_file.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// More gains nothing.
constexpr uint64_t kMaxStreamBytes = uint64_t{8} << 20;

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

uint64_t StreamBytes(const RankWriterContext& context) {
  // Beside it, blocks are compressed.
  const uint64_t bytes =
      context.resources.buffer_bytes / (context.manifest.compressed ? 4 : 1);
  return std::min(bytes, kMaxStreamBytes);
}

// As many as have room for a block each.
int32_t NumThreads(const RankWriterContext& context) {
  const uint64_t bytes_of_thread =
      context.manifest.block_bytes * BlockCompressor::kBytesPerBlockByte;
  const uint64_t bytes = context.resources.buffer_bytes - StreamBytes(context);
  return static_cast<int32_t>(std::clamp<uint64_t>(
      bytes / bytes_of_thread, 1,
      static_cast<uint64_t>(std::max(context.resources.num_threads, 1))));
}

// Of bytes [begin, end), which `write` gets in pieces.
uint64_t Digest(const Hdf5Image& image, uint64_t begin, uint64_t end,
                const std::function<void(std::span<const std::byte>)>& write) {
  Hasher64 hasher;
  image.ForEach(begin, end,
                [&](uint64_t /*offset*/, std::span<const std::byte> bytes) {
                  hasher.Update(bytes);
                  write(bytes);
                });
  return hasher.Digest();
}

}  // namespace

RankWriter::RankWriter(const RankWriterContext& context, int32_t rank,
                       std::unique_ptr<WritableFile> file,
                       std::vector<SinkSegment> segments)
    : context_(context),
      rank_(rank),
      file_(std::move(file)),
      segments_(std::move(segments)),
      first_segment_(context.layout.first_segment(rank)),
      stream_(*file_, kPageBytes, StreamBytes(context)),
      compressor_(context.zstd_level, NumThreads(context)) {
  if (!context_.manifest.compressed) file_->Preallocate(PlainEnd());
  BeginSegment();
}

uint64_t RankWriter::PlainEnd() const {
  uint64_t end = kPageBytes;
  for (size_t i = 0; i < segments_.size(); ++i) {
    end += RoundUp(context_.layout.segment_bytes(first_segment_ + i));
  }
  return end;
}

size_t RankWriter::SegmentBytes() const {
  return context_.layout.segment_bytes(first_segment_ + current_);
}

void RankWriter::BeginSegment() {
  done_bytes_ = 0;
  // Where a compressed one begins shows when all before it are compressed.
  if (current_ < segments_.size() && !context_.manifest.compressed) {
    RankFile& file = context_.files[static_cast<size_t>(rank_)];
    file.segment_offsets[current_] = stream_.position();
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
  if (!context_.manifest.compressed) stream_.Append(bytes);
  for (auto rest = bytes; !rest.empty();) {
    const auto part = rest.first(std::min(rest.size(), RestOfBlock()));
    if (context_.manifest.compressed) {
      AddToCompress(part);
    } else {
      HashPlain(part);
    }
    rest = rest.subspan(part.size());
  }
  stream_.Settle();
  if (done_bytes_ == SegmentBytes()) {
    EndSegment();
  }
}

void RankWriter::HashPlain(std::span<const std::byte> bytes) {
  const size_t rest = RestOfBlock();
  if (!hasher_) {
    hasher_.emplace();
  }
  hasher_->Update(bytes);
  done_bytes_ += bytes.size();
  if (bytes.size() == rest) {
    const size_t block = (done_bytes_ - 1) / context_.manifest.block_bytes;
    const uint64_t begin = block * context_.manifest.block_bytes;
    const RankFile& file = context_.files[static_cast<size_t>(rank_)];
    context_.blocks.Set(first_segment_ + current_, block,
                        {.offset_bytes = file.segment_offsets[current_] + begin,
                         .stored_bytes = done_bytes_ - begin,
                         .digest = hasher_->Digest()});
    hasher_.reset();
  }
}

void RankWriter::AddToCompress(std::span<const std::byte> bytes) {
  const size_t rest = RestOfBlock();
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  done_bytes_ += bytes.size();
  if (bytes.size() < rest) {
    return;
  }
  // HDF5 keeps the last chunk in the size of all others.
  const size_t block_bytes = context_.manifest.block_bytes;
  buffer_.resize(std::min(SegmentBytes(), block_bytes));
  if (compressor_.full()) WriteCompressed();
  compressor_.Start(std::exchange(buffer_, {}),
                    static_cast<size_t>(SizeBytes(segments_[current_].dtype)));
  compressing_.push_back({current_, (done_bytes_ - 1) / block_bytes});
}

void RankWriter::WriteCompressed() {
  const std::vector<std::byte> stored = compressor_.Next();
  const auto [segment, block] = compressing_.front();
  compressing_.pop_front();
  const uint64_t offset = stream_.position();
  if (block == 0) {
    RankFile& file = context_.files[static_cast<size_t>(rank_)];
    file.segment_offsets[segment] = offset;
  }
  stream_.Append(stored);
  context_.blocks.Set(first_segment_ + segment, block,
                      {.offset_bytes = offset,
                       .stored_bytes = stored.size(),
                       .digest = Hash64(stored)});
  stream_.Settle();
}

void RankWriter::EndSegment() {
  if (!context_.manifest.compressed) {
    constexpr std::array<std::byte, kPageBytes> kZeros{};
    const uint64_t end = stream_.position();
    stream_.Append(std::span(kZeros).first(RoundUp(end) - end));
  }
  ++current_;
  BeginSegment();
}

void RankWriter::WriteAround() {
  while (!compressor_.empty()) WriteCompressed();
  const uint64_t payload_end = stream_.position();
  RankFileContent content{.rank = rank_,
                          .save_id = context_.manifest.save_id,
                          .compressed = context_.manifest.compressed,
                          .zstd_level = context_.zstd_level,
                          .block_bytes = context_.manifest.block_bytes,
                          .payload_end = payload_end};
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
  RankFile& file = context_.files[static_cast<size_t>(rank_)];
  file.size_bytes = image.size_bytes();
  file.tail_offset = payload_end;
  file.tail_digest =
      Digest(image, payload_end, image.size_bytes(),
             [&](std::span<const std::byte> bytes) { stream_.Append(bytes); });
  stream_.Finish();
  file.head_digest = Digest(
      image, 0, kPageBytes,
      [&](std::span<const std::byte> bytes) { file_->WriteAt(0, bytes); });
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
