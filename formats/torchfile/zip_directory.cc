#include "formats/torchfile/zip_directory.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "formats/torchfile/zip_end.h"
#include "formats/torchfile/zip_entry.h"
#include "formats/torchfile/zip_local_headers.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

std::vector<std::byte> ReadDirectoryBytes(RandomAccessFile& file,
                                          const ZipEnd& end,
                                          MemoryBudget& budget) {
  if (end.num_records > end.directory_size_bytes / kCentralHeaderBytes) {
    throw Error(ErrorCode::kDataLoss,
                "the zip directory is too short for its records",
                {.offset_bytes = end.directory_offset_bytes,
                 .expected = StrCat(end.num_records, " records"),
                 .found = StrCat(end.directory_size_bytes, " bytes")});
  }
  budget.Charge(end.directory_size_bytes);
  std::vector<std::byte> bytes(end.directory_size_bytes);
  file.ReadAt(end.directory_offset_bytes, bytes);
  return bytes;
}

// A TorchScript archive holds code; its records may be compressed.
void RequireNoScript(const ZipEntry& entry, uint64_t offset_bytes) {
  const size_t slash = entry.name.find('/');
  const std::string_view name = slash == std::string_view::npos
                                    ? entry.name
                                    : entry.name.substr(slash + 1);
  if (name == "constants.pkl" || name.starts_with("code/")) {
    throw Error(ErrorCode::kUnsupported,
                "a TorchScript archive (torch.jit.save), not a checkpoint; "
                "save the module's state_dict() with torch.save",
                {.offset_bytes = offset_bytes});
  }
}

void RequireStored(const ZipEntry& entry, uint64_t offset_bytes) {
  const std::string name = Printable(entry.name);
  if (entry.is_encrypted()) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("record ", name, " is encrypted"),
                {.offset_bytes = offset_bytes});
  }
  if (entry.method != 0) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("record ", name,
                       " is compressed, which torch.save never does; unpack "
                       "the archive and zip it again without compression"),
                {.offset_bytes = offset_bytes,
                 .expected = "method 0",
                 .found = StrCat(entry.method)});
  }
  if (entry.compressed_bytes != entry.size_bytes) {
    throw Error(ErrorCode::kDataLoss, StrCat("record ", name, " has two sizes"),
                {.offset_bytes = offset_bytes,
                 .expected = StrCat(entry.compressed_bytes),
                 .found = StrCat(entry.size_bytes)});
  }
}

// Entries that only name a folder; general zip tools add them.
bool IsFolder(const ZipEntry& entry) {
  return entry.name.ends_with('/') && entry.size_bytes == 0;
}

// "root/" of "root/data.pkl".
std::string RootOf(const ZipEntry& entry, uint64_t offset_bytes) {
  const size_t slash = entry.name.find('/');
  if (slash == std::string_view::npos) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("a zip archive that torch.save did not write: record ",
                       Printable(entry.name), " is in no folder"),
                {.offset_bytes = offset_bytes});
  }
  return std::string(entry.name.substr(0, slash + 1));
}

RecordInfo ToRecord(const ZipEntry& entry, const std::string& root,
                    uint64_t offset_bytes) {
  if (!entry.name.starts_with(root)) {
    throw Error(ErrorCode::kDataLoss,
                "the records of the archive are in more than one folder",
                {.offset_bytes = offset_bytes,
                 .expected = Printable(root),
                 .found = Printable(entry.name)});
  }
  return {.name = std::string(entry.name.substr(root.size())),
          .size_bytes = entry.size_bytes,
          .crc32 = entry.crc32,
          .has_crc = true,
          .has_descriptor = entry.has_descriptor()};
}

}  // namespace

ZipDirectory ZipDirectory::Read(RandomAccessFile& file, MemoryBudget& budget) {
  const ZipEnd end = ReadZipEnd(file);
  const std::vector<std::byte> bytes = ReadDirectoryBytes(file, end, budget);
  ZipDirectory directory;
  std::vector<uint64_t> header_offsets;
  budget.Grow(directory.records_, end.num_records);
  budget.Grow(header_offsets, end.num_records);
  std::span<const std::byte> rest(bytes);
  for (uint64_t i = 0; i < end.num_records; ++i) {
    const uint64_t offset =
        end.directory_offset_bytes + (bytes.size() - rest.size());
    const ZipEntry entry = ParseCentralHeader(rest, offset);
    rest = rest.subspan(entry.total_bytes);
    if (IsFolder(entry)) {
      continue;
    }
    RequireNoScript(entry, offset);
    RequireStored(entry, offset);
    if (directory.records_.empty()) {
      directory.root_ = RootOf(entry, offset);
    }
    RecordInfo record = ToRecord(entry, directory.root_, offset);
    budget.ChargeText(record.name.size());
    directory.records_.push_back(std::move(record));
    header_offsets.push_back(entry.header_offset_bytes);
  }
  if (!rest.empty()) {
    throw Error(ErrorCode::kDataLoss,
                "the zip directory holds more than its records",
                {.offset_bytes =
                     end.directory_offset_bytes + bytes.size() - rest.size(),
                 .expected = StrCat(end.num_records, " records")});
  }
  budget.Grow(directory.by_name_, directory.records_.size());
  directory.SortNames();
  ReadLocalHeaders(file, directory.root_, end.directory_offset_bytes,
                   header_offsets, directory.records_);
  budget.Release(bytes.size() + header_offsets.capacity() * sizeof(uint64_t));
  return directory;
}

void ZipDirectory::SortNames() {
  by_name_.resize(records_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
    return records_[a].name < records_[b].name;
  });
  const auto twin = std::adjacent_find(
      by_name_.begin(), by_name_.end(), [&](uint32_t a, uint32_t b) {
        return records_[a].name == records_[b].name;
      });
  if (twin != by_name_.end()) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("record ", Printable(records_[*twin].name),
                       " occurs twice in the archive"));
  }
}

std::optional<uint32_t> ZipDirectory::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](uint32_t a, std::string_view n) { return records_[a].name < n; });
  if (found == by_name_.end() || records_[*found].name != name) {
    return std::nullopt;
  }
  return *found;
}

}  // namespace muonstore::torchfile
