// The bytes of an HDF5 file apart from its payload, in memory.
//
// What: libhdf5 writes here (hdf5_driver.h), and whoever made it writes the
//   bytes to a file through the file-system seam: libhdf5 itself touches no
//   file. The payload, a range that the caller chose, is never in here.
// Ownership: owns its pages.
// Threads: one at a time.
#ifndef MUONSTORE_FORMATS_NATIVE_HDF5_IMAGE_H_
#define MUONSTORE_FORMATS_NATIVE_HDF5_IMAGE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

namespace muonstore::native {

class Hdf5Image {
 public:
  // Bytes [payload_begin, payload_end) are somebody else's.
  Hdf5Image(uint64_t payload_begin, uint64_t payload_end)
      : payload_begin_(payload_begin), payload_end_(payload_end) {}

  uint64_t payload_begin() const { return payload_begin_; }
  uint64_t payload_end() const { return payload_end_; }
  uint64_t size_bytes() const { return size_bytes_; }
  void set_size_bytes(uint64_t size) { size_bytes_ = size; }

  // The address that the next request for raw data of `size` bytes gets.
  void PlaceNextRaw(uint64_t address, uint64_t size) {
    raw_address_ = address;
    raw_bytes_ = size;
  }
  // True, once, where a request has just that size.
  bool TakeRaw(uint64_t size, uint64_t& address);

  // Bytes of the payload are dropped.
  void Write(uint64_t offset, std::span<const std::byte> bytes);
  // What was never written is zero.
  void Read(uint64_t offset, std::span<std::byte> out) const;
  // Passes bytes [begin, end) on in pieces.
  void ForEach(
      uint64_t begin, uint64_t end,
      const std::function<void(uint64_t offset,
                               std::span<const std::byte> bytes)>& take) const;

 private:
  static constexpr uint64_t kPage = 4096;
  using Page = std::array<std::byte, kPage>;

  uint64_t payload_begin_;
  uint64_t payload_end_;
  uint64_t size_bytes_ = 0;
  uint64_t raw_address_ = 0;
  uint64_t raw_bytes_ = 0;
  std::map<uint64_t, Page> pages_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HDF5_IMAGE_H_
