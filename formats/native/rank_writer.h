// Writes one rank's file: payload front to back, then the HDF5 around it.
#ifndef MUONSTORE_FORMATS_NATIVE_RANK_WRITER_H_
#define MUONSTORE_FORMATS_NATIVE_RANK_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/native/block_table.h"
#include "formats/native/hash.h"
#include "formats/native/layout.h"
#include "formats/native/manifest.h"
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
  size_t SegmentBytes() const;
  void BeginSegment();
  void EndSegment();
  // Bytes of the current block that are still to come.
  size_t RestOfBlock() const;
  void WritePlain(std::span<const std::byte> bytes);
  void WriteCompressed(std::span<const std::byte> bytes);
  void EndBlock(const Block& block);
  void WriteAround();

  RankWriterContext context_;
  int32_t rank_;
  std::unique_ptr<WritableFile> file_;
  std::vector<SinkSegment> segments_;
  size_t first_segment_;   // Of the rank, in the layout.
  size_t current_ = 0;     // Segment within the rank.
  size_t done_bytes_ = 0;  // Of the current segment.
  size_t block_ = 0;       // Of the current segment.
  uint64_t position_ = kPageBytes;
  std::optional<Hasher64> hasher_;  // Of the current block, not compressed.
  std::vector<std::byte> buffer_;   // The current block, to be compressed.
  bool closed_ = false;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_RANK_WRITER_H_
