#include "formats/native/stream_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace muonstore::native {
namespace {

void WaitFor(PendingPtr& pending) {
  if (pending != nullptr) std::exchange(pending, nullptr)->Wait();
}

}  // namespace

StreamWriter::StreamWriter(WritableFile& file, uint64_t position,
                           uint64_t buffer_bytes)
    : file_(file),
      position_(position),
      buffer_bytes_(std::max<size_t>(
          kIoBlockBytes,
          buffer_bytes / kNumBuffers / kIoBlockBytes * kIoBlockBytes)) {}

bool StreamWriter::CanBorrow(std::span<const std::byte> bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return bytes.size() >= kMinBorrowedBytes &&
         (address | position()) % kIoBlockBytes == 0;
}

void StreamWriter::Append(std::span<const std::byte> bytes) {
  if (CanBorrow(bytes)) {
    Flush();
    const std::span<const std::byte> whole =
        bytes.first(bytes.size() / kIoBlockBytes * kIoBlockBytes);
    borrowed_.push_back(file_.StartWrite(position_, whole));
    position_ += whole.size();
    bytes = bytes.subspan(whole.size());
  }
  try {
    Copy(bytes);
  } catch (...) {
    borrowed_.clear();  // Which waits: the memory is the caller's again.
    throw;
  }
}

void StreamWriter::Copy(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    Buffer& buffer = buffers_[current_];
    if (filled_ == 0) {
      WaitFor(buffer.write);
      if (buffer.bytes.size() == 0) buffer.bytes = AlignedBytes(buffer_bytes_);
    }
    const size_t part = std::min(bytes.size(), buffer_bytes_ - filled_);
    std::memcpy(buffer.bytes.data() + filled_, bytes.data(), part);
    filled_ += part;
    bytes = bytes.subspan(part);
    if (filled_ == buffer_bytes_) Flush();
  }
}

void StreamWriter::Flush() {
  if (filled_ == 0) return;
  Buffer& buffer = buffers_[current_];
  buffer.write =
      file_.StartWrite(position_, buffer.bytes.span().first(filled_));
  position_ += filled_;
  filled_ = 0;
  current_ = (current_ + 1) % kNumBuffers;
}

void StreamWriter::Settle() {
  // What is left when one throws is waited for as well.
  const std::vector<PendingPtr> writes = std::exchange(borrowed_, {});
  for (const PendingPtr& write : writes) write->Wait();
}

void StreamWriter::Finish() {
  Flush();
  Settle();
  for (Buffer& buffer : buffers_) WaitFor(buffer.write);
}

}  // namespace muonstore::native
