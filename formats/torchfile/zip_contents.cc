// The zip container of torch.save, torch 1.4 and later.

#include <charconv>
#include <span>
#include <string>
#include <utility>

#include "formats/torchfile/contents.h"
#include "formats/torchfile/crc32.h"
#include "formats/torchfile/pickle_machine.h"
#include "formats/torchfile/pickle_reader.h"
#include "formats/torchfile/storage_table.h"
#include "formats/torchfile/tree_builder.h"
#include "formats/torchfile/zip_directory.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr uint64_t kMaxSmallRecordBytes = 64;
constexpr uint64_t kMaxVersion = 10;  // Of torch 2.x.

void RequireCrc(RandomAccessFile& file, const RecordInfo& record) {
  const uint32_t crc =
      Crc32OfRange(file, record.offset_bytes, record.size_bytes);
  if (crc != record.crc32) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("record ", record.name, " is damaged"),
                {.offset_bytes = record.offset_bytes,
                 .expected = StrCat("CRC-32 ", record.crc32),
                 .found = StrCat(crc)});
  }
}

std::string ReadSmallRecord(RandomAccessFile& file, const RecordInfo& record) {
  if (record.size_bytes > kMaxSmallRecordBytes) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("record ", record.name, " is too long"),
                {.offset_bytes = record.offset_bytes,
                 .expected = StrCat("at most ", kMaxSmallRecordBytes, " bytes"),
                 .found = StrCat(record.size_bytes)});
  }
  RequireCrc(file, record);
  std::string text(record.size_bytes, '\0');
  file.ReadAt(record.offset_bytes, std::as_writable_bytes(std::span(text)));
  return text;
}

void CheckVersion(RandomAccessFile& file, const ZipDirectory& directory) {
  auto index = directory.Find("version");
  if (!index.has_value()) {
    index = directory.Find(".data/version");
  }
  if (!index.has_value()) {
    throw Error(ErrorCode::kDataLoss, "the archive has no record `version`");
  }
  const RecordInfo& record = directory.records()[*index];
  std::string text = ReadSmallRecord(file, record);
  if (text.ends_with('\n')) {
    text.pop_back();
  }
  uint64_t version = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, version);
  if (result.ec != std::errc() || result.ptr != end || version == 0) {
    throw Error(ErrorCode::kDataLoss, "the record `version` is damaged",
                {.offset_bytes = record.offset_bytes,
                 .expected = "a number",
                 .found = Printable(text)});
  }
  if (version > kMaxVersion) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("version ", version,
                       " of the container; this reader "
                       "knows versions up to ",
                       kMaxVersion));
  }
}

bool ReadIsBigEndian(RandomAccessFile& file, const ZipDirectory& directory) {
  const auto index = directory.Find("byteorder");
  if (!index.has_value()) {
    return false;  // torch 2.0 and older.
  }
  const RecordInfo& record = directory.records()[*index];
  const std::string order = ReadSmallRecord(file, record);
  if (order != "little" && order != "big") {
    throw Error(ErrorCode::kDataLoss, "the record `byteorder` is damaged",
                {.offset_bytes = record.offset_bytes,
                 .expected = "little or big",
                 .found = Printable(order)});
  }
  return order == "big";
}

// Looks a storage up in the archive, and nowhere else.
void ResolveStorage(const ZipDirectory& directory, StorageInfo& storage) {
  const std::string name = StrCat("data/", storage.key);
  const auto index = directory.Find(name);
  if (!index.has_value()) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the archive has no record for storage '",
                       Printable(storage.key), "'"),
                {.expected = StrCat("a record ", Printable(name))});
  }
  const RecordInfo& record = directory.records()[*index];
  if (record.size_bytes != storage.size_bytes) {
    throw Error(
        ErrorCode::kDataLoss,
        StrCat("record ", Printable(name), " has not the size of its storage"),
        {.expected = StrCat(storage.size_bytes, " bytes"),
         .found = StrCat(record.size_bytes)});
  }
  storage.record = *index;
  storage.offset_bytes = record.offset_bytes;
}

const RecordInfo& PickleRecord(const ZipDirectory& directory) {
  const auto index = directory.Find("data.pkl");
  if (!index.has_value()) {
    throw Error(ErrorCode::kUnsupported,
                "a zip archive that torch.save did not write: it has no "
                "record data.pkl");
  }
  return directory.records()[*index];
}

void ReadPickle(RandomAccessFile& file, const RecordInfo& record,
                const ZipDirectory& directory, MemoryBudget& budget,
                ValueTree& tree) {
  RequireCrc(file, record);
  const uint64_t end = record.offset_bytes + record.size_bytes;
  PickleReader reader(file, record.offset_bytes, end, budget);
  TreeBuilder builder(tree, budget);
  StorageTable storages(
      builder, StorageTable::Container::kZip,
      [&](StorageInfo& storage) { ResolveStorage(directory, storage); });
  PickleMachine(reader, builder, &storages).Run();
  if (reader.remaining_bytes() != 0) {
    throw Error(ErrorCode::kDataLoss, "bytes follow the end of the pickle",
                {.offset_bytes = reader.offset_bytes(),
                 .found = StrCat(reader.remaining_bytes(), " more bytes")});
  }
}

}  // namespace

Contents ReadZipContents(RandomAccessFile& file, MemoryBudget& budget) {
  ZipDirectory directory = ZipDirectory::Read(file, budget);
  const RecordInfo& pickle = PickleRecord(directory);
  CheckVersion(file, directory);
  Contents contents;
  contents.is_big_endian = ReadIsBigEndian(file, directory);
  ReadPickle(file, pickle, directory, budget, contents.tree);
  contents.archive_root = directory.root();
  contents.archive_root.pop_back();  // The slash.
  contents.records = std::move(directory).TakeRecords();
  return contents;
}

}  // namespace muonstore::torchfile
