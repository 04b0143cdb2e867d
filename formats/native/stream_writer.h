// Writes a file from front to back at the disk's speed.
//
// What: bytes are collected in a few buffers of whole blocks, each of which is
//   on its way to the disk while the next one fills. Large runs of whole blocks
//   in memory that starts at one go to the disk from where they are.
// Ownership: keeps a reference to the file, which outlives it. Destroying it
//   waits for what is under way.
// Threads: one.
// Failures: those of writing, at a later call than the bytes were given in;
//   Finish() has seen them all.
#ifndef MUONSTORE_FORMATS_NATIVE_STREAM_WRITER_H_
#define MUONSTORE_FORMATS_NATIVE_STREAM_WRITER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/file_system.h"
#include "muonstore/pending.h"
#include "src/base/aligned_bytes.h"

namespace muonstore::native {

class StreamWriter {
 public:
  // Shorter runs are copied, so that their owner need not wait for the disk.
  static constexpr size_t kMinBorrowedBytes = size_t{16} << 20;

  // Begins at `position`, a multiple of a block.
  StreamWriter(WritableFile& file, uint64_t position, uint64_t buffer_bytes);
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;
  ~StreamWriter() = default;

  // Where the next byte goes.
  uint64_t position() const { return position_ + filled_; }

  // `bytes` must stay as they are until Settle() has returned.
  void Append(std::span<const std::byte> bytes);
  void Settle();
  // All is written, though not durable.
  void Finish();

 private:
  static constexpr size_t kNumBuffers = 4;

  struct Buffer {
    AlignedBytes bytes;
    PendingPtr write;
  };

  bool CanBorrow(std::span<const std::byte> bytes) const;
  void Copy(std::span<const std::byte> bytes);
  void Flush();

  WritableFile& file_;
  uint64_t position_;  // Of the current buffer.
  size_t buffer_bytes_;
  size_t filled_ = 0;
  size_t current_ = 0;
  std::array<Buffer, kNumBuffers> buffers_;
  std::vector<PendingPtr> borrowed_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_STREAM_WRITER_H_
