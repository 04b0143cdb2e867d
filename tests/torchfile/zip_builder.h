// Builds zip archives byte by byte, sound ones and broken ones.
#ifndef MUONSTORE_TESTS_TORCHFILE_ZIP_BUILDER_H_
#define MUONSTORE_TESTS_TORCHFILE_ZIP_BUILDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muonstore::torchfile {

// Little-endian bytes of a number.
template <typename T>
std::string Bytes(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// CRC-32 by the textbook, bit by bit.
uint32_t SlowCrc32(const std::string& data);

struct ZipRecord {
  std::string name;
  std::string data;
  uint16_t flags = 0;
  uint16_t method = 0;
  bool has_descriptor = false;  // And zeros in the local header.
  bool is_zip64 = false;        // Sizes and offset in extra fields.
  std::string local_extra;      // Raw extra fields.
  std::string central_extra;
  // What headers say where it is not the truth.
  std::optional<std::string> local_name;
  std::optional<uint32_t> local_crc;
  std::optional<uint32_t> local_size;
  std::optional<uint32_t> crc;
  std::optional<uint32_t> compressed_size;
  std::optional<uint32_t> size;
  std::optional<uint32_t> header_offset;
  std::optional<std::string> descriptor;
  uint16_t disk = 0;
};

struct ZipOptions {
  bool zip64_end = false;
  std::string prefix;  // Before the first record.
  std::string gap;     // Between the records and the directory.
  std::string comment;
  std::string suffix;  // Behind the end record.
  std::optional<uint16_t> num_records;
  std::optional<uint32_t> directory_size;
  std::optional<uint32_t> directory_offset;
  uint16_t disk = 0;
};

std::string BuildZip(const std::vector<ZipRecord>& records,
                     const ZipOptions& options = {});

// The records of a minimal torch file: data.pkl, byteorder, version, and
// data/0, data/1, ... for the payloads.
std::vector<ZipRecord> TorchRecords(const std::string& pickle,
                                    const std::vector<std::string>& payloads);

// The archive of TorchRecords().
std::string TorchZip(const std::string& pickle,
                     const std::vector<std::string>& payloads = {});

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_ZIP_BUILDER_H_
