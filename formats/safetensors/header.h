// The header of a safetensors file.
//
// What: eight bytes with the header's length (little-endian), the header (JSON,
//   padded with spaces to a multiple of eight), then the tensors without gaps.
//   README.md has the format. Headers are written as the Python library writes
//   them, byte for byte.
// Ownership: plain values.
// Threads: pure functions.
// Failures: Error(kDataLoss) for bytes that are no such header, and for tensors
//   that overlap, leave gaps or do not fill the file; Error(kUnsupported) for
//   names and dtypes that the format does not have.

#ifndef MUONSTORE_FORMATS_SAFETENSORS_HEADER_H_
#define MUONSTORE_FORMATS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "muonstore/dtype.h"
#include "muonstore/file_system.h"
#include "muonstore/shape.h"

namespace muonstore::safetensors {

// What the library itself refuses to read beyond.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  // From the end of the header.
  uint64_t begin_bytes = 0;
  uint64_t end_bytes = 0;
};

uint64_t SizeBytes(const TensorEntry& entry);

// Throws for a name that is no UTF-8 or is reserved, and for a dtype that the
// format lacks.
void RequireWritable(const std::string& name, DType dtype);

// The order in which the library writes them: wide dtypes first, then by name.
bool IsBefore(const TensorEntry& a, const TensorEntry& b);

// Length field, JSON and padding. The entries have their places.
std::string WriteHeader(std::span<const TensorEntry> entries);

struct Header {
  std::vector<TensorEntry> entries;  // By place.
  uint64_t data_offset_bytes = 0;    // Of the first tensor in the file.
};

Header ReadHeader(RandomAccessFile& file);

}  // namespace muonstore::safetensors

#endif  // MUONSTORE_FORMATS_SAFETENSORS_HEADER_H_
