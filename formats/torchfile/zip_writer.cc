#include "formats/torchfile/zip_writer.h"

#include <string>
#include <utility>

#include "formats/torchfile/crc32.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

std::span<const std::byte> BytesOf(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

ZipWriter::ZipWriter(WritableFile& file, std::vector<ZipRecordPlan> records)
    : file_(file), records_(std::move(records)) {
  buffer_.reserve(kBufferBytes);
}

uint64_t ZipWriter::remaining_bytes() const {
  return current_ == records_.size()
             ? 0
             : records_[current_].size_bytes - done_bytes_;
}

void ZipWriter::Append(std::span<const std::byte> data) {
  if (current_ == records_.size() || data.size() > remaining_bytes()) {
    throw Error(ErrorCode::kInternal, "more data than a record was planned for",
                {.file = file_.path(),
                 .expected = StrCat("at most ", remaining_bytes(), " bytes"),
                 .found = StrCat(data.size())});
  }
  if (!is_begun_) {
    Begin();
  }
  records_[current_].crc32 = Crc32(records_[current_].crc32, data);
  done_bytes_ += data.size();
  Write(data);
  if (remaining_bytes() == 0) {
    End();
  }
}

void ZipWriter::AppendText(std::string_view text) { Append(BytesOf(text)); }

void ZipWriter::Begin() {
  Write(BytesOf(LocalHeader(records_[current_])));
  is_begun_ = true;
}

void ZipWriter::End() {
  Write(BytesOf(DataDescriptor(records_[current_])));
  ++current_;
  is_begun_ = false;
  done_bytes_ = 0;
}

void ZipWriter::Write(std::span<const std::byte> data) {
  if (buffer_.size() + data.size() > kBufferBytes) {
    Flush();
  }
  if (data.size() >= kBufferBytes) {
    file_.WriteAt(position_bytes_, data);
    position_bytes_ += data.size();
  } else {
    buffer_.insert(buffer_.end(), data.begin(), data.end());
  }
}

void ZipWriter::Flush() {
  if (!buffer_.empty()) {
    file_.WriteAt(position_bytes_, buffer_);
    position_bytes_ += buffer_.size();
    buffer_.clear();
  }
}

void ZipWriter::Finish() {
  if (current_ != records_.size()) {
    throw Error(ErrorCode::kInternal, "a record was not filled",
                {.file = file_.path(),
                 .expected = StrCat(remaining_bytes(), " more bytes of ",
                                    records_[current_].name)});
  }
  const uint64_t begin = records_.empty() ? 0 : EndOfRecord(records_.back());
  uint64_t size = 0;
  for (const ZipRecordPlan& record : records_) {
    const std::string header = CentralHeader(record);
    size += header.size();
    Write(BytesOf(header));
  }
  Write(BytesOf(EndRecords(records_.size(), begin, size)));
  Flush();
}

}  // namespace muonstore::torchfile
