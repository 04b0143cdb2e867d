#include "formats/torchfile/torch_file_writer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "formats/torchfile/pickler.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

struct SmallRecord {
  std::string_view name;
  std::string_view text;
};

// As torch 2.6 and later have them, in this order around the storages.
constexpr std::string_view kPickleName = "data.pkl";
constexpr SmallRecord kHead[] = {{".format_version", "1"},
                                 {".storage_alignment", "64"},
                                 {"byteorder", "little"}};
constexpr SmallRecord kVersion = {"version", "3\n"};
constexpr std::string_view kIdName = ".data/serialization_id";
constexpr size_t kIdDigits = 40;
constexpr size_t kFirstStorage = 1 + std::size(kHead);
constexpr size_t kMaxNameBytes = 60000;

constexpr int64_t kBlockBytes = int64_t{1} << 20;

std::string TwentyDigits(uint64_t value) {
  std::string digits = StrCat(value);
  return std::string(kIdDigits / 2 - digits.size(), '0') + digits;
}

uint64_t Combine(uint64_t seed, uint64_t value) {
  return seed ^ (value + 0x9e3779b97f4a7c15u + (seed << 6) + (seed >> 2));
}

// Tells contents apart, as torch's does; the digits themselves differ from
// torch's, which depend on its compiler.
std::string SerializationId(std::span<const ZipRecordPlan> records) {
  uint64_t names = 0;
  uint64_t contents = 0;
  for (const ZipRecordPlan& record : records) {
    for (const char c : record.name) {
      names = Combine(names, static_cast<unsigned char>(c));
    }
    contents = Combine(contents, record.crc32);
  }
  return TwentyDigits(names) + TwentyDigits(contents);
}

void CheckRoot(const std::string& root) {
  if (root.empty() || root.find('/') != std::string::npos ||
      root.size() > kMaxNameBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                "the root folder of a torch file must be one name",
                {.found = Printable(root.substr(0, 100))});
  }
}

}  // namespace

TorchFilePlan::TorchFilePlan(const Draft& draft,
                             const std::string& archive_root)
    : folder_(archive_root + "/") {
  CheckRoot(archive_root);
  Pickled pickled = Pickle(draft.tree());
  pickle_ = std::move(pickled.bytes);
  storages_ = std::move(pickled.storages);
  Add(std::string(kPickleName), pickle_.size());
  for (const SmallRecord& record : kHead) {
    Add(std::string(record.name), record.text.size());
  }
  for (size_t key = 0; key < storages_.size(); ++key) {
    const uint32_t storage = storages_[key];
    const uint64_t size = draft.tree().storages[storage].size_bytes;
    Add(StrCat("data/", key), size);
    sources_.push_back(draft.source(storage));
    if (sources_.back().file == nullptr && size != 0) {
      segments_.push_back({storage, records_.back().data_offset_bytes, size});
    }
  }
  Add(std::string(kVersion.name), kVersion.text.size());
  Add(std::string(kIdName), kIdDigits);
  uint64_t directory_bytes = 0;
  for (const ZipRecordPlan& record : records_) {
    directory_bytes += CentralHeader(record).size();
  }
  file_size_bytes_ = EndOfRecord(records_.back()) + directory_bytes +
                     EndRecords(0, 0, 0).size();
}

void TorchFilePlan::Add(const std::string& name, uint64_t size_bytes) {
  const uint64_t begin = records_.empty() ? 0 : EndOfRecord(records_.back());
  records_.push_back(PlaceRecord(folder_ + name, size_bytes, begin));
}

TorchFileWriter::TorchFileWriter(WritableFile& file, TorchFilePlan plan)
    : plan_(std::move(plan)),
      zip_(file, std::move(plan_.records_)),
      path_(file.path()) {}

void TorchFileWriter::WriteHead() {
  if (zip_.current() != 0) {
    return;
  }
  zip_.AppendText(plan_.pickle_);
  plan_.pickle_ = {};
  for (const SmallRecord& record : kHead) {
    zip_.AppendText(record.text);
  }
}

size_t TorchFileWriter::CurrentKey() const {
  return zip_.current() - kFirstStorage;
}

void TorchFileWriter::WriteOwnRecords() {
  WriteHead();
  while (CurrentKey() < plan_.sources_.size()) {
    StorageSource& source = plan_.sources_[CurrentKey()];
    if (source.file != nullptr) {
      CopyStorage(std::exchange(source, {}));
    } else if (zip_.remaining_bytes() == 0) {
      zip_.Append({});
    } else {
      return;
    }
  }
}

// In blocks, through a flat view of the whole storage.
void TorchFileWriter::CopyStorage(const StorageSource& source) {
  const StorageInfo& storage = source.file->tree().storages[source.storage];
  const size_t record = zip_.current();
  TensorInfo all;
  all.storage = source.storage;
  all.dtype = storage.dtype;
  all.shape = Shape({storage.num_elements});
  all.strides = {1};
  const int64_t step = kBlockBytes / SizeBytes(storage.dtype);
  std::vector<std::byte> block;
  int64_t done = 0;
  do {
    const int64_t count = std::min(step, storage.num_elements - done);
    block.resize(static_cast<size_t>(count * SizeBytes(storage.dtype)));
    source.file->ReadElements(all, done, block);
    zip_.Append(block);
    done += count;
  } while (done < storage.num_elements);
  const RecordInfo& original = source.file->records()[storage.record];
  if (original.has_crc && !source.file->is_big_endian() &&
      original.crc32 != zip_.records()[record].crc32) {
    throw Error(
        ErrorCode::kDataLoss,
        StrCat("record ", Printable(original.name),
               " is damaged: its CRC-32 differs"),
        {.file = source.file->path(), .offset_bytes = original.offset_bytes});
  }
}

void TorchFileWriter::WriteStorage(uint32_t storage,
                                   std::span<const std::byte> bytes) {
  WriteOwnRecords();
  const bool is_next = CurrentKey() < plan_.storages_.size() &&
                       plan_.storages_[CurrentKey()] == storage;
  if (!is_next) {
    throw Error(ErrorCode::kInternal, "storages are written out of order",
                {.file = path_, .found = StrCat("storage ", storage)});
  }
  zip_.Append(bytes);
}

void TorchFileWriter::Finish() {
  WriteOwnRecords();
  if (CurrentKey() != plan_.sources_.size()) {
    throw Error(ErrorCode::kInternal, "a storage was not filled",
                {.file = path_,
                 .expected = StrCat(zip_.remaining_bytes(), " more bytes")});
  }
  zip_.AppendText(kVersion.text);
  zip_.AppendText(
      SerializationId(std::span(zip_.records()).first(zip_.current())));
  zip_.Finish();
}

}  // namespace muonstore::torchfile
