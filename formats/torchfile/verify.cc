// TorchFile::Verify: every byte of every record.

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "formats/torchfile/crc32.h"
#include "formats/torchfile/little_endian.h"
#include "formats/torchfile/tensor_paths.h"
#include "formats/torchfile/torch_file.h"
#include "formats/torchfile/zip_signatures.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

// CRC and sizes behind the data: with or without a signature, sizes of 4 or 8
// bytes. Whether one of the forms says what the directory says.
bool DescriptorAgrees(RandomAccessFile& file, const RecordInfo& record) {
  const uint64_t offset = record.offset_bytes + record.size_bytes;
  std::array<std::byte, 24> bytes{};
  file.ReadAt(offset, std::span(bytes).first(std::min<uint64_t>(
                          bytes.size(), file.size_bytes() - offset)));
  const bool is_signed =
      LoadLittleEndian<uint32_t>(bytes.data()) == kDescriptorSignature;
  const std::byte* const at = bytes.data() + (is_signed ? 4 : 0);
  const bool short_form =
      LoadLittleEndian<uint32_t>(at + 4) == record.size_bytes &&
      LoadLittleEndian<uint32_t>(at + 8) == record.size_bytes;
  const bool long_form =
      LoadLittleEndian<uint64_t>(at + 4) == record.size_bytes &&
      LoadLittleEndian<uint64_t>(at + 12) == record.size_bytes;
  return LoadLittleEndian<uint32_t>(at) == record.crc32 &&
         (short_form || long_form);
}

}  // namespace

std::string TorchFile::TensorsOver(uint32_t record) const {
  std::vector<std::string> names;
  VisitTensors(tree(), [&](const std::string& path, const TensorInfo& tensor) {
    if (tree().storages[tensor.storage].record == record) {
      names.push_back(Printable(path));
    }
  });
  return JoinNames(names, names.size());
}

void TorchFile::VerifyRecord(
    RandomAccessFile& file, uint32_t record,
    const std::function<void(uint64_t bytes)>& on_block,
    std::vector<Error>& faults) const {
  const RecordInfo& info = records()[record];
  const auto add = [&](std::string_view what, std::string expected,
                       std::string found) {
    faults.emplace_back(ErrorCode::kDataLoss,
                        StrCat("record ", Printable(info.name), " ", what),
                        ErrorPlace{.file = path_,
                                   .tensor = TensorsOver(record),
                                   .offset_bytes = info.offset_bytes,
                                   .expected = std::move(expected),
                                   .found = std::move(found)});
  };
  try {
    const uint32_t crc =
        Crc32OfRange(file, info.offset_bytes, info.size_bytes, on_block);
    if (info.has_crc && crc != info.crc32) {
      add("is damaged", StrCat("CRC-32 ", Crc32ToHex(info.crc32)),
          Crc32ToHex(crc));
    }
    if (info.has_descriptor && !DescriptorAgrees(file, info)) {
      add("is followed by a damaged data descriptor", "", "");
    }
  } catch (const Error& e) {
    faults.push_back(e.WithFile(path_).WithTensor(TensorsOver(record)));
  }
}

std::vector<Error> TorchFile::Verify(
    const std::function<void(uint64_t bytes)>& on_bytes) const {
  std::vector<Error> faults;
  const std::unique_ptr<RandomAccessFile> file = fs_->OpenForRead(path_);
  if (file->size_bytes() != file_size_bytes_) {
    faults.emplace_back(ErrorCode::kDataLoss,
                        "the file changed its size since it was opened",
                        ErrorPlace{.file = path_,
                                   .expected = StrCat(file_size_bytes_),
                                   .found = StrCat(file->size_bytes())});
    return faults;
  }
  uint64_t done = 0;
  for (uint32_t i = 0; i < records().size(); ++i) {
    VerifyRecord(
        *file, i,
        [&](uint64_t bytes) {
          done += bytes;
          if (on_bytes) {
            on_bytes(done);
          }
        },
        faults);
  }
  return faults;
}

}  // namespace muonstore::torchfile
