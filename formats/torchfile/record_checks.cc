#include "formats/torchfile/record_checks.h"

#include <iterator>

#include "formats/torchfile/crc32.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {

bool RecordChecks::IsOver(uint32_t record) {
  const std::lock_guard lock(mutex_);
  return progress_[record].is_over;
}

void RecordChecks::Add(RandomAccessFile& file, uint32_t record, uint64_t begin,
                       std::span<const std::byte> bytes) {
  const RecordInfo& info = records_[record];
  if (!info.has_crc || IsOver(record)) {
    return;
  }
  const Part part{.end = begin + bytes.size(), .crc = Crc32(0, bytes)};
  const std::lock_guard lock(mutex_);
  Progress& progress = progress_[record];
  if (progress.is_over) {
    return;
  }
  if (!bytes.empty()) {
    Insert(progress, begin, part);
  }
  if (info.size_bytes - progress.num_bytes <= kRestBytes) {
    ReadRest(file, info, progress);
    Compare(info, progress);
  } else if (progress.parts.size() > kMaxParts) {
    progress = {.is_over = true};
  }
}

void RecordChecks::Insert(Progress& progress, uint64_t begin,
                          const Part& part) {
  auto& parts = progress.parts;
  auto next = parts.lower_bound(begin);
  const bool overlaps =
      (next != parts.end() && next->first < part.end) ||
      (next != parts.begin() && std::prev(next)->second.end > begin);
  if (overlaps) {
    return;
  }
  progress.num_bytes += part.end - begin;
  auto at = parts.emplace_hint(next, begin, part);
  const auto join = [&](auto left, auto right) {
    left->second = {.end = right->second.end,
                    .crc = Crc32Combine(left->second.crc, right->second.crc,
                                        right->second.end - right->first)};
    parts.erase(right);
  };
  if (at != parts.begin() && std::prev(at)->second.end == begin) {
    const auto left = std::prev(at);
    join(left, at);
    at = left;
  }
  if (next != parts.end() && at->second.end == next->first) {
    join(at, next);
  }
}

void RecordChecks::ReadRest(RandomAccessFile& file, const RecordInfo& record,
                            Progress& progress) const {
  uint64_t at = 0;
  while (progress.num_bytes < record.size_bytes) {
    const auto next = progress.parts.upper_bound(at);
    if (next != progress.parts.begin() && std::prev(next)->second.end > at) {
      at = std::prev(next)->second.end;
      continue;
    }
    const uint64_t end =
        next == progress.parts.end() ? record.size_bytes : next->first;
    Insert(progress, at,
           {.end = end,
            .crc = Crc32OfRange(file, record.offset_bytes + at, end - at)});
  }
}

void RecordChecks::Compare(const RecordInfo& record, Progress& progress) const {
  const uint32_t crc =
      progress.parts.empty() ? 0 : progress.parts.begin()->second.crc;
  progress = {.is_over = crc == record.crc32};
  if (crc != record.crc32) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("record ", Printable(record.name),
                       " is damaged: its CRC-32 differs"),
                {.offset_bytes = record.offset_bytes,
                 .expected = Crc32ToHex(record.crc32),
                 .found = Crc32ToHex(crc)});
  }
}

}  // namespace muonstore::torchfile
