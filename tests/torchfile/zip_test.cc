// The zip container, section by section, with one thing wrong at a time.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/crc32.h"
#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile {
namespace {

std::string OneTensor() {
  return pickle::Whole(pickle::Dict({{"w", pickle::Tensor()}}));
}

std::vector<ZipRecord> Records() {
  return TorchRecords(OneTensor(), {pickle::Floats(6)});
}

// Opens, reads the tensor and verifies.
void ExpectSound(const std::string& bytes) {
  const auto file = OpenBytes(bytes);
  EXPECT_EQ(ReadAll(*file, file->root().Get("w").AsTensor()),
            pickle::Floats(6));
  for (const Error& fault : file->Verify()) {
    ADD_FAILURE() << fault.what();
  }
}

void ExpectBroken(const std::vector<ZipRecord>& records, ErrorCode code,
                  const std::string& text, const ZipOptions& options = {}) {
  EXPECT_ERROR(OpenBytes(BuildZip(records, options)), code, text);
}

constexpr size_t kPayload = 3;  // data/0 in Records().

TEST(Zip, PlainArchive) { ExpectSound(BuildZip(Records())); }

TEST(Zip, DataDescriptors) {
  auto records = Records();
  for (ZipRecord& record : records) {
    record.has_descriptor = true;
  }
  ExpectSound(BuildZip(records));
  // Without the optional signature.
  records[kPayload].descriptor = Bytes(SlowCrc32(records[kPayload].data)) +
                                 Bytes<uint64_t>(24 | 24ull << 32);
  ExpectSound(BuildZip(records));
}

TEST(Zip, Zip64Fields) {
  auto records = Records();
  for (ZipRecord& record : records) {
    record.is_zip64 = true;
  }
  ExpectSound(BuildZip(records, {.zip64_end = true}));
  records[kPayload].has_descriptor = true;
  ExpectSound(BuildZip(records, {.zip64_end = true}));
}

TEST(Zip, SaturatedEndRecordUsesTheZip64One) {
  ExpectSound(BuildZip(Records(), {.zip64_end = true,
                                   .num_records = 0xFFFF,
                                   .directory_size = 0xFFFFFFFF,
                                   .directory_offset = 0xFFFFFFFF}));
}

TEST(Zip, CommentsPaddingAndFolders) {
  auto records = Records();
  records[0].local_extra = "FB" + Bytes<uint16_t>(5) + "ZZZZZ";
  records.insert(records.begin(), {.name = "a/"});
  ExpectSound(BuildZip(records, {.gap = "alignment", .comment = "PK\5\6 no"}));
}

TEST(Zip, EndRecordDefects) {
  const auto records = Records();
  ExpectBroken(records, ErrorCode::kDataLoss, "bytes follow", {.suffix = "x"});
  ExpectBroken(records, ErrorCode::kDataLoss, "does not end at",
               {.directory_size = 7});
  ExpectBroken(records, ErrorCode::kDataLoss, "does not end at",
               {.directory_offset = 0xFFFFFFFF});
  ExpectBroken(records, ErrorCode::kDataLoss, "too short for its records",
               {.num_records = 60000});
  ExpectBroken(records, ErrorCode::kDataLoss, "more than its records",
               {.num_records = 2});
  ExpectBroken(records, ErrorCode::kDataLoss, "too short for its records",
               {.num_records = 5});
  ExpectBroken(records, ErrorCode::kUnsupported, "several disks", {.disk = 1});
  ExpectBroken(records, ErrorCode::kDataLoss, "disagree",
               {.zip64_end = true, .num_records = 3});
}

TEST(Zip, BytesBeforeTheArchiveAreRejected) {
  const std::string sound = BuildZip(Records());
  EXPECT_ERROR(OpenBytes("PKxx" + sound), ErrorCode::kDataLoss,
               "does not end at");
}

TEST(Zip, Zip64LocatorDefects) {
  std::string bytes = BuildZip(Records(), {.zip64_end = true});
  const size_t locator = bytes.size() - 22 - 20;
  for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, ~uint64_t{0},
                                uint64_t{locator - 55}, uint64_t{locator}}) {
    std::string broken = bytes;
    broken.replace(locator + 8, 8, Bytes(offset));
    EXPECT_ERROR(OpenBytes(broken), ErrorCode::kDataLoss, "ZIP64");
  }
  bytes.replace(locator + 16, 4, Bytes<uint32_t>(2));
  EXPECT_ERROR(OpenBytes(bytes), ErrorCode::kUnsupported, "several disks");
}

TEST(Zip, CompressedAndEncryptedRecords) {
  auto records = Records();
  records[kPayload].method = 8;
  ExpectBroken(records, ErrorCode::kUnsupported, "a/data/0 is compressed");
  records = Records();
  for (const uint16_t flag : {uint16_t{1}, uint16_t{0x40}, uint16_t{0x2000}}) {
    records[kPayload].flags = flag;
    ExpectBroken(records, ErrorCode::kUnsupported, "a/data/0 is encrypted");
  }
}

TEST(Zip, DirectoryEntryDefects) {
  const auto broken = [](void (*change)(ZipRecord&), const std::string& text,
                         ErrorCode code = ErrorCode::kDataLoss) {
    auto records = Records();
    change(records[kPayload]);
    ExpectBroken(records, code, text);
  };
  broken([](ZipRecord& r) { r.compressed_size = 23; }, "two sizes");
  broken([](ZipRecord& r) { r.disk = 3; }, "several disks",
         ErrorCode::kUnsupported);
  broken([](ZipRecord& r) { r.header_offset = 0x7FFFFFFF; },
         "lies outside of the archive");
  broken([](ZipRecord& r) { r.header_offset = 5; }, "overlaps");
  broken([](ZipRecord& r) { r.header_offset = 0; }, "overlaps");
  broken([](ZipRecord& r) { r.size = r.compressed_size = 0xFFFFFFFF; },
         "lacks its ZIP64");
  broken([](ZipRecord& r) { r.central_extra = "ab\xFF\xFF"; }, "leaves its");
  broken([](ZipRecord& r) { r.name = "b/data/0"; }, "more than one folder");
  broken([](ZipRecord& r) { r.name = "a/version"; }, "version occurs twice");
  broken([](ZipRecord& r) { r.size = r.compressed_size = r.local_size = 40; },
         "overlaps");
}

TEST(Zip, LocalHeaderMustAgree) {
  const auto broken = [](void (*change)(ZipRecord&), const std::string& text) {
    auto records = Records();
    change(records[kPayload]);
    ExpectBroken(records, ErrorCode::kDataLoss, text);
  };
  broken([](ZipRecord& r) { r.local_name = "a/data/1"; }, "another name");
  broken([](ZipRecord& r) { r.local_size = 20; }, "another size");
  broken([](ZipRecord& r) { r.local_size = 0; }, "another size");
  broken([](ZipRecord& r) { r.local_crc = 1; }, "another CRC-32");
  broken(
      [](ZipRecord& r) {
        r.has_descriptor = true;
        r.local_crc = 1;
      },
      "another CRC-32");
  broken([](ZipRecord& r) { r.crc = 12345; }, "another CRC-32");
}

TEST(Zip, RecordsOfTheFormat) {
  auto records = Records();
  records[1].data = "middle";
  ExpectBroken(records, ErrorCode::kDataLoss, "little or big");
  records[1].data = std::string(100, 'x');
  ExpectBroken(records, ErrorCode::kDataLoss, "byteorder is too long");
  records = Records();
  records[2].data = "11\n";
  ExpectBroken(records, ErrorCode::kUnsupported, "version 11");
  for (const char* version : {"", "x", "3x", "0\n", "-1"}) {
    records[2].data = version;
    ExpectBroken(records, ErrorCode::kDataLoss, "`version` is damaged");
  }
  records[2] = {.name = "a/.data/version", .data = "10"};
  ExpectSound(BuildZip(records));
  records.erase(records.begin() + 2);
  ExpectBroken(records, ErrorCode::kDataLoss, "no record `version`");
}

TEST(Zip, OtherArchivesAreNamed) {
  ExpectBroken({}, ErrorCode::kUnsupported, "no record data.pkl");
  ExpectBroken({{.name = "arr_0.npy"}}, ErrorCode::kUnsupported,
               "is in no folder");
  ExpectBroken({{.name = "a/x"}}, ErrorCode::kUnsupported,
               "no record data.pkl");
  auto records = Records();
  records.push_back({.name = "a/code/x.py", .method = 8});
  ExpectBroken(records, ErrorCode::kUnsupported, "TorchScript");
  records.back() = {.name = "a/constants.pkl"};
  ExpectBroken(records, ErrorCode::kUnsupported, "TorchScript");
}

TEST(Zip, InterpretedRecordsAreCheckedOnOpen) {
  for (const size_t index : {0u, 1u, 2u}) {
    auto records = Records();
    records[index].crc = records[index].local_crc = 99;
    ExpectBroken(records, ErrorCode::kDataLoss, "is damaged");
  }
}

TEST(Zip, TarFilesAreNamed) {
  std::string tar(1024, '\0');
  tar.replace(0, 8, "storages");
  tar.replace(257, 5, "ustar");
  EXPECT_ERROR(OpenBytes(tar), ErrorCode::kUnsupported, "tar file");
}

TEST(Zip, HeadersAreReadTogether) {
  std::vector<std::string> payloads(2000, "x");
  const std::string bytes = TorchZip(pickle::Whole(pickle::Dict({})), payloads);
  MemoryFile file(bytes);
  MemoryBudget budget(bytes.size());
  const Contents contents = ReadZipContents(file, budget);
  EXPECT_EQ(contents.records.size(), 2003u);
  EXPECT_LT(file.num_reads, 40u);
  EXPECT_EQ(bytes.substr(contents.records[5].offset_bytes, 1), "x");
}

TEST(Crc, AgreesWithTheTextbookInAllLengths) {
  std::string data;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(Crc32(0, std::as_bytes(std::span(data))), SlowCrc32(data));
    data += static_cast<char>(i * 37 + 11);
  }
  const auto bytes = std::as_bytes(std::span(data));
  EXPECT_EQ(Crc32(Crc32(0, bytes.first(101)), bytes.subspan(101)),
            SlowCrc32(data));
}

}  // namespace
}  // namespace muonstore::torchfile
