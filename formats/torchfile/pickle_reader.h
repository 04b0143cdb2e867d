// Reads a pickle's bytes in order, through a buffer.
//
// What: bytes, little-endian numbers, lines and counted strings of a range of a
//   file. The pickle is never held as a whole.
// Ownership: borrows the file and the budget, which must outlive it.
// Threads: one thread.
// Failures: Error(kDataLoss) with the offset where the range ends too early;
//   a length is compared with what is left before anything is allocated.

#ifndef MUONSTORE_FORMATS_TORCHFILE_PICKLE_READER_H_
#define MUONSTORE_FORMATS_TORCHFILE_PICKLE_READER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/torchfile/little_endian.h"
#include "formats/torchfile/memory_budget.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

class PickleReader {
 public:
  // Reads [begin_bytes, end_bytes) of the file.
  PickleReader(RandomAccessFile& file, uint64_t begin_bytes, uint64_t end_bytes,
               MemoryBudget& budget);

  // Offset of the next byte, from the start of the file.
  uint64_t offset_bytes() const { return buffer_offset_bytes_ + next_; }
  uint64_t remaining_bytes() const { return end_bytes_ - offset_bytes(); }

  uint8_t ReadByte() {
    if (next_ == filled_) {
      Fill(1);
    }
    return static_cast<uint8_t>(buffer_[next_++]);
  }

  template <std::integral T>
  T ReadNumber() {
    return LoadLittleEndian<T>(ReadView(sizeof(T)).data());
  }

  // The next `size_bytes` bytes; valid until the next read. For small sizes.
  std::string_view ReadView(size_t size_bytes) {
    if (size_bytes > filled_ - next_) {
      Fill(size_bytes);
    }
    const std::string_view view(buffer_.data() + next_, size_bytes);
    next_ += size_bytes;
    return view;
  }

  // A string of its own, charged to the budget; large ones bypass the buffer.
  std::string ReadString(uint64_t size_bytes);

  // Up to a newline, which is consumed but not returned.
  std::string_view ReadLine();

  // Error(kDataLoss) unless `size_bytes` more bytes are there.
  void Require(uint64_t size_bytes) const;

 private:
  // Buffers at least `size_bytes` from the next byte on.
  void Fill(size_t size_bytes);

  RandomAccessFile& file_;
  MemoryBudget& budget_;
  uint64_t end_bytes_;
  uint64_t buffer_offset_bytes_;
  size_t next_ = 0;    // In the buffer.
  size_t filled_ = 0;  // Bytes of the buffer that hold data.
  std::vector<char> buffer_;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_PICKLE_READER_H_
