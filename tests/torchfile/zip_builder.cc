#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile {
namespace {

constexpr uint16_t kDescriptorFlag = 8;

std::string LocalHeader(const ZipRecord& record) {
  const std::string name = record.local_name.value_or(record.name);
  const uint32_t true_size = static_cast<uint32_t>(record.data.size());
  const uint32_t crc = record.local_crc.value_or(
      record.has_descriptor ? 0 : SlowCrc32(record.data));
  const uint32_t size =
      record.local_size.value_or(record.has_descriptor ? 0
                                 : record.is_zip64     ? 0xFFFFFFFFu
                                                       : true_size);
  std::string extra = record.local_extra;
  if (record.is_zip64) {
    extra += Bytes<uint16_t>(1) + Bytes<uint16_t>(16) +
             Bytes<uint64_t>(true_size) + Bytes<uint64_t>(true_size);
  }
  const auto flags = static_cast<uint16_t>(
      record.flags | (record.has_descriptor ? kDescriptorFlag : 0));
  return Bytes<uint32_t>(0x04034b50) + Bytes<uint16_t>(20) + Bytes(flags) +
         Bytes(record.method) + Bytes<uint32_t>(0) + Bytes(crc) + Bytes(size) +
         Bytes(size) + Bytes(static_cast<uint16_t>(name.size())) +
         Bytes(static_cast<uint16_t>(extra.size())) + name + extra;
}

std::string Descriptor(const ZipRecord& record) {
  if (!record.has_descriptor) {
    return {};
  }
  const std::string size =
      record.is_zip64 ? Bytes<uint64_t>(record.data.size())
                      : Bytes(static_cast<uint32_t>(record.data.size()));
  return record.descriptor.value_or(Bytes<uint32_t>(0x08074b50) +
                                    Bytes(SlowCrc32(record.data)) + size +
                                    size);
}

std::string CentralHeader(const ZipRecord& record, uint32_t header_offset) {
  const auto true_size = static_cast<uint32_t>(record.data.size());
  const uint32_t narrow = record.is_zip64 ? 0xFFFFFFFFu : true_size;
  std::string extra = record.central_extra;
  if (record.is_zip64) {
    extra += Bytes<uint16_t>(1) + Bytes<uint16_t>(24) +
             Bytes<uint64_t>(true_size) + Bytes<uint64_t>(true_size) +
             Bytes<uint64_t>(header_offset);
  }
  const auto flags = static_cast<uint16_t>(
      record.flags | (record.has_descriptor ? kDescriptorFlag : 0));
  return Bytes<uint32_t>(0x02014b50) + Bytes<uint32_t>(20) + Bytes(flags) +
         Bytes(record.method) + Bytes<uint32_t>(0) +
         Bytes(record.crc.value_or(SlowCrc32(record.data))) +
         Bytes(record.compressed_size.value_or(narrow)) +
         Bytes(record.size.value_or(narrow)) +
         Bytes(static_cast<uint16_t>(record.name.size())) +
         Bytes(static_cast<uint16_t>(extra.size())) + Bytes<uint16_t>(0) +
         Bytes(record.disk) + Bytes<uint16_t>(0) + Bytes<uint32_t>(0) +
         Bytes(record.header_offset.value_or(record.is_zip64 ? 0xFFFFFFFFu
                                                             : header_offset)) +
         record.name + extra;
}

std::string Zip64End(uint64_t num_records, uint64_t size, uint64_t offset) {
  const uint64_t end_offset = offset + size;
  return Bytes<uint32_t>(0x06064b50) + Bytes<uint64_t>(44) +
         Bytes<uint16_t>(45) + Bytes<uint16_t>(45) + Bytes<uint32_t>(0) +
         Bytes<uint32_t>(0) + Bytes(num_records) + Bytes(num_records) +
         Bytes(size) + Bytes(offset) + Bytes<uint32_t>(0x07064b50) +
         Bytes<uint32_t>(0) + Bytes(end_offset) + Bytes<uint32_t>(1);
}

}  // namespace

uint32_t SlowCrc32(const std::string& data) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : data) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
    }
  }
  return ~crc;
}

std::string BuildZip(const std::vector<ZipRecord>& records,
                     const ZipOptions& options) {
  std::string file = options.prefix;
  std::string directory;
  for (const ZipRecord& record : records) {
    directory += CentralHeader(record, static_cast<uint32_t>(file.size()));
    file += LocalHeader(record) + record.data + Descriptor(record);
  }
  file += options.gap;
  const auto offset = static_cast<uint32_t>(file.size());
  const auto size = static_cast<uint32_t>(directory.size());
  file += directory;
  if (options.zip64_end) {
    file += Zip64End(records.size(), size, offset);
  }
  const uint16_t count =
      options.num_records.value_or(static_cast<uint16_t>(records.size()));
  file += Bytes<uint32_t>(0x06054b50) + Bytes(options.disk) +
          Bytes<uint16_t>(0) + Bytes(count) + Bytes(count) +
          Bytes(options.directory_size.value_or(size)) +
          Bytes(options.directory_offset.value_or(offset)) +
          Bytes(static_cast<uint16_t>(options.comment.size())) +
          options.comment;
  return file + options.suffix;
}

std::vector<ZipRecord> TorchRecords(const std::string& pickle,
                                    const std::vector<std::string>& payloads) {
  std::vector<ZipRecord> records = {{.name = "a/data.pkl", .data = pickle},
                                    {.name = "a/byteorder", .data = "little"},
                                    {.name = "a/version", .data = "3\n"}};
  for (size_t i = 0; i < payloads.size(); ++i) {
    records.push_back(
        {.name = "a/data/" + std::to_string(i), .data = payloads[i]});
  }
  return records;
}

std::string TorchZip(const std::string& pickle,
                     const std::vector<std::string>& payloads) {
  return BuildZip(TorchRecords(pickle, payloads));
}

}  // namespace muonstore::torchfile
