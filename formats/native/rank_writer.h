// Writes one rank's file: payload front to back, then the HDF5 around it.
//
// What: plain segments go to the disk as they come, several requests at a time,
//   while their checksums are computed; memory of 16 MiB and more that starts
//   at a page is written from where it is. Blocks to be compressed are
//   compressed by several threads.
// Ownership: owns the file; memory given to Append is the caller's again when
//   that returns.
// Threads: one. Failures: those of the file, at a later call than the bytes.
#ifndef MUONSTORE_FORMATS_NATIVE_RANK_WRITER_H_
#define MUONSTORE_FORMATS_NATIVE_RANK_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/native/block_compressor.h"
#include "formats/native/block_table.h"
#include "formats/native/hash.h"
#include "formats/native/layout.h"
#include "formats/native/manifest.h"
#include "formats/native/stream_writer.h"
#include "muonstore/checkpoint_sink.h"
#include "muonstore/file_system.h"

namespace muonstore::native {

// What the writers of all ranks share; each touches its own rank's parts.
struct RankWriterContext {
  const Manifest& manifest;
  const Layout& layout;
  int zstd_level = 0;
  // Of the single tensor in each slot; empty for those of flat groups.
  std::span<const std::string> slot_names;
  BlockTable& blocks;
  std::span<RankFile> files;
  SinkFileResources resources = {};
};

class RankWriter final : public SinkFile {
 public:
  // `segments` are those of the rank, in the layout's order.
  RankWriter(const RankWriterContext& context, int32_t rank,
             std::unique_ptr<WritableFile> file,
             std::vector<SinkSegment> segments);

  const std::string& path() const override { return file_->path(); }
  std::span<const SinkSegment> segments() const override { return segments_; }
  void Append(size_t segment, std::span<const std::byte> bytes) override;
  void Close() override;

 private:
  struct BlockId {
    size_t segment = 0;  // Within the rank.
    size_t block = 0;
  };

  size_t SegmentBytes() const;
  void BeginSegment();
  void EndSegment();
  // Bytes of the current block that are still to come.
  size_t RestOfBlock() const;
  uint64_t PlainEnd() const;
  void HashPlain(std::span<const std::byte> bytes);
  void AddToCompress(std::span<const std::byte> bytes);
  void WriteCompressed();
  void WriteAround();

  RankWriterContext context_;
  int32_t rank_;
  std::unique_ptr<WritableFile> file_;
  std::vector<SinkSegment> segments_;
  size_t first_segment_;   // Of the rank, in the layout.
  size_t current_ = 0;     // Segment within the rank.
  size_t done_bytes_ = 0;  // Of the current segment.
  StreamWriter stream_;
  std::optional<Hasher64> hasher_;  // Of the current block, not compressed.
  std::vector<std::byte> buffer_;   // The current block, to be compressed.
  BlockCompressor compressor_;
  std::deque<BlockId> compressing_;  // What is in there.
  bool closed_ = false;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_RANK_WRITER_H_
