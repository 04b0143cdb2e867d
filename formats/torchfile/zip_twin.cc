#include "formats/torchfile/zip_twin.h"

#include <algorithm>
#include <cstddef>

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/zip_directory.h"
#include "muonstore/error.h"

namespace muonstore::torchfile {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;

bool HasItsOwnBytes(const RecordInfo& record) {
  return record.name.starts_with("data/") ||
         record.name == ".data/serialization_id";
}

bool SameBytes(RandomAccessFile& a, const RecordInfo& in_a, RandomAccessFile& b,
               const RecordInfo& in_b) {
  std::vector<std::byte> from_a;
  std::vector<std::byte> from_b;
  for (uint64_t at = 0; at < in_a.size_bytes; at += from_a.size()) {
    const uint64_t size = std::min(kBlockBytes, in_a.size_bytes - at);
    from_a.resize(size);
    from_b.resize(size);
    a.ReadAt(in_a.offset_bytes + at, from_a);
    b.ReadAt(in_b.offset_bytes + at, from_b);
    if (from_a != from_b) {
      return false;
    }
  }
  return true;
}

bool SameRecord(RandomAccessFile& a, const RecordInfo& in_a,
                RandomAccessFile& b, const RecordInfo& in_b) {
  if (in_a.name != in_b.name || in_a.size_bytes != in_b.size_bytes) {
    return false;
  }
  return HasItsOwnBytes(in_a) ||
         (in_a.crc32 == in_b.crc32 && SameBytes(a, in_a, b, in_b));
}

}  // namespace

bool IsZipTwin(RandomAccessFile& file, const std::vector<RecordInfo>& records,
               RandomAccessFile& other) {
  try {
    MemoryBudget budget(other.size_bytes());
    const ZipDirectory directory = ZipDirectory::Read(other, budget);
    return std::equal(records.begin(), records.end(),
                      directory.records().begin(), directory.records().end(),
                      [&](const RecordInfo& a, const RecordInfo& b) {
                        return SameRecord(file, a, other, b);
                      });
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound ||
        error.code() == ErrorCode::kUnavailable) {
      throw;
    }
    return false;
  }
}

}  // namespace muonstore::torchfile
