#include "formats/torchfile/pickle_reader.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr uint64_t kBufferBytes = uint64_t{256} << 10;

}  // namespace

PickleReader::PickleReader(RandomAccessFile& file, uint64_t begin_bytes,
                           uint64_t end_bytes, MemoryBudget& budget)
    : file_(file),
      budget_(budget),
      end_bytes_(end_bytes),
      buffer_offset_bytes_(begin_bytes) {
  const uint64_t capacity = std::min(kBufferBytes, end_bytes - begin_bytes);
  budget_.Charge(capacity);
  buffer_.resize(capacity);
}

void PickleReader::Require(uint64_t size_bytes) const {
  if (size_bytes <= remaining_bytes()) {
    return;
  }
  ErrorPlace place;
  place.offset_bytes = offset_bytes();
  place.expected = StrCat(size_bytes, " more bytes");
  place.found = StrCat(remaining_bytes());
  throw Error(ErrorCode::kDataLoss, "the pickle ends too early",
              std::move(place));
}

void PickleReader::Fill(size_t size_bytes) {
  Require(size_bytes);
  std::memmove(buffer_.data(), buffer_.data() + next_, filled_ - next_);
  buffer_offset_bytes_ += next_;
  filled_ -= next_;
  next_ = 0;
  if (size_bytes > buffer_.size()) {
    const size_t old_capacity = buffer_.size();
    budget_.Charge(size_bytes);
    buffer_.resize(size_bytes);
    budget_.Release(old_capacity);
  }
  const uint64_t missing = end_bytes_ - buffer_offset_bytes_ - filled_;
  const std::span part = std::span(buffer_).subspan(
      filled_, std::min<uint64_t>(missing, buffer_.size() - filled_));
  file_.ReadAt(buffer_offset_bytes_ + filled_, std::as_writable_bytes(part));
  filled_ += part.size();
}

std::string PickleReader::ReadString(uint64_t size_bytes) {
  Require(size_bytes);
  budget_.ChargeText(size_bytes);
  if (size_bytes <= filled_ - next_ || size_bytes < kBufferBytes / 2) {
    return std::string(ReadView(size_bytes));
  }
  std::string text(size_bytes, '\0');
  const size_t buffered = filled_ - next_;
  std::memcpy(text.data(), buffer_.data() + next_, buffered);
  const std::span rest = std::span(text).subspan(buffered);
  file_.ReadAt(buffer_offset_bytes_ + filled_, std::as_writable_bytes(rest));
  buffer_offset_bytes_ += filled_ + rest.size();
  next_ = 0;
  filled_ = 0;
  return text;
}

std::string_view PickleReader::ReadLine() {
  size_t searched = 0;
  while (true) {
    const std::string_view buffered(buffer_.data() + next_, filled_ - next_);
    const size_t newline = buffered.find('\n', searched);
    if (newline != std::string_view::npos) {
      next_ += newline + 1;
      return buffered.substr(0, newline);
    }
    searched = buffered.size();
    // Doubles, so that a long line costs linear time.
    const uint64_t wanted = std::max<uint64_t>(2 * searched, 64);
    Fill(std::max<size_t>(searched + 1,
                          std::min<uint64_t>(wanted, remaining_bytes())));
  }
}

}  // namespace muonstore::torchfile
