#include "formats/native/hdf5_image.h"

#include <algorithm>
#include <vector>

namespace muonstore::native {

bool Hdf5Image::TakeRaw(uint64_t size, uint64_t& address) {
  if (raw_bytes_ == 0 || size != raw_bytes_) {
    return false;
  }
  address = raw_address_;
  raw_bytes_ = 0;
  return true;
}

void Hdf5Image::Write(uint64_t offset, std::span<const std::byte> bytes) {
  if (offset >= payload_begin_ && offset < payload_end_) {
    return;
  }
  while (!bytes.empty()) {
    Page& page = pages_.try_emplace(offset / kPage).first->second;
    const uint64_t at = offset % kPage;
    const size_t part = std::min<size_t>(bytes.size(), kPage - at);
    std::copy_n(bytes.begin(), part,
                page.begin() + static_cast<std::ptrdiff_t>(at));
    bytes = bytes.subspan(part);
    offset += part;
  }
}

void Hdf5Image::Read(uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const auto page = pages_.find(offset / kPage);
    const uint64_t at = offset % kPage;
    const size_t part = std::min<size_t>(out.size(), kPage - at);
    if (page == pages_.end()) {
      std::fill_n(out.begin(), part, std::byte{0});
    } else {
      std::copy_n(page->second.begin() + static_cast<std::ptrdiff_t>(at), part,
                  out.begin());
    }
    out = out.subspan(part);
    offset += part;
  }
}

void Hdf5Image::ForEach(
    uint64_t begin, uint64_t end,
    const std::function<void(uint64_t offset,
                             std::span<const std::byte> bytes)>& take) const {
  constexpr uint64_t kPiece = 1 << 20;
  std::vector<std::byte> buffer;
  for (uint64_t at = begin; at < end; at += buffer.size()) {
    buffer.resize(std::min(kPiece, end - at));
    Read(at, buffer);
    take(at, buffer);
  }
}

}  // namespace muonstore::native
