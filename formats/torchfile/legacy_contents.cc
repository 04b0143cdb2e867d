// The stream of torch 1.3 and older, and of torch.save with
// _use_new_zipfile_serialization=False.

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/torchfile/contents.h"
#include "formats/torchfile/pickle_machine.h"
#include "formats/torchfile/pickle_reader.h"
#include "formats/torchfile/storage_table.h"
#include "formats/torchfile/tree_builder.h"
#include "formats/torchfile/value.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

// 0x1950a86a20f9469cfc6c, little-endian.
constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19",
                                  10);
constexpr int64_t kProtocolVersion = 1001;
constexpr uint64_t kCountBytes = 8;

// A pickle of plain values, which no storage can occur in.
ValueTree ReadPlainPickle(PickleReader& reader, MemoryBudget& budget) {
  ValueTree tree;
  TreeBuilder builder(tree, budget);
  PickleMachine(reader, builder, nullptr).Run();
  return tree;
}

void ReadHeader(PickleReader& reader, MemoryBudget& budget) {
  const ValueTree magic = ReadPlainPickle(reader, budget);
  if (magic.nodes[magic.root].type != ValueType::kBigInt ||
      magic.Text(magic.root) != kMagic) {
    throw Error(ErrorCode::kUnsupported,
                "a plain pickle, not a file of torch.save",
                {.expected = "torch's magic number",
                 .found = Value(magic, magic.root).Describe(60)});
  }
  const ValueTree version = ReadPlainPickle(reader, budget);
  const Value number(version, version.root);
  if (!number.is(ValueType::kInt) || number.AsInt() != kProtocolVersion) {
    throw Error(
        ErrorCode::kUnsupported, "an unknown version of the legacy stream",
        {.expected = StrCat(kProtocolVersion), .found = number.Describe(60)});
  }
  const ValueTree info = ReadPlainPickle(reader, budget);
  const Value is_little = Value(info, info.root).Get("little_endian");
  if (!is_little.AsBool()) {
    // torch swapped to little-endian when writing, other writers may not have;
    // nothing in the file tells which, so no guess is made.
    throw Error(ErrorCode::kUnsupported,
                "a legacy stream from a big-endian machine; save it again "
                "with torch 1.4 or later");
  }
}

// The storages behind the pickles: for each key its count and its data.
class StorageStream {
 public:
  StorageStream(RandomAccessFile& file, Contents& out, MemoryBudget& budget)
      : file_(file), out_(out), budget_(budget) {}

  // Numbers the storages that the object's pickle names.
  void Resolve(StorageInfo& storage) {
    const auto next = static_cast<uint32_t>(out_.records.size());
    const auto [entry, is_new] = record_of_key_.try_emplace(storage.key, next);
    if (is_new) {
      budget_.Charge(kMapNodeBytes);
      budget_.ChargeText(storage.key.size());
      const uint64_t size = StorageBytes(storage, storage.record_elements);
      budget_.PushBack(
          out_.records,
          RecordInfo{.name = StrCat("storage ", Printable(storage.key)),
                     .size_bytes = size});
      budget_.PushBack(num_elements_, storage.record_elements);
    }
    storage.record = entry->second;
  }

  // Finds the data of all storages, which begin at `offset_bytes` in the order
  // of `keys` and end with the file.
  void Locate(uint64_t offset_bytes, const Value& keys) {
    next_bytes_ = offset_bytes;
    for (size_t i = 0; i < keys.size(); ++i) {
      LocateOne(keys.at(i).AsString());
    }
    if (next_bytes_ != file_.size_bytes()) {
      throw Error(
          ErrorCode::kDataLoss, "bytes follow the last storage",
          {.offset_bytes = next_bytes_,
           .expected = "the end of the file",
           .found = StrCat(file_.size_bytes() - next_bytes_, " more bytes")});
    }
    for (StorageInfo& storage : out_.tree.storages) {
      const RecordInfo& record = out_.records[storage.record];
      if (record.offset_bytes == 0) {
        Fail(storage.key, "is missing from the list of storages", "", "");
      }
      storage.offset_bytes =
          record.offset_bytes + StorageBytes(storage, storage.first_element);
    }
  }

 private:
  static constexpr uint64_t kMapNodeBytes = 80;

  void LocateOne(const std::string& key) {
    const auto found = record_of_key_.find(key);
    if (found == record_of_key_.end() ||
        out_.records[found->second].offset_bytes != 0) {
      Fail(key, "occurs in no tensor, or twice in the list of storages", "",
           "");
    }
    RecordInfo& record = out_.records[found->second];
    const uint64_t left = file_.size_bytes() - next_bytes_;
    if (left < kCountBytes || record.size_bytes > left - kCountBytes) {
      Fail(key, "is cut: the file ends too early",
           StrCat(kCountBytes + record.size_bytes, " bytes"), StrCat(left));
    }
    std::array<std::byte, kCountBytes> count{};
    file_.ReadAt(next_bytes_, count);
    const auto num_elements = LoadLittleEndian<int64_t>(count.data());
    if (num_elements != num_elements_[found->second]) {
      Fail(key, "has another size than its tensors say",
           StrCat(num_elements_[found->second], " elements"),
           StrCat(num_elements));
    }
    record.offset_bytes = next_bytes_ + kCountBytes;
    next_bytes_ += kCountBytes + record.size_bytes;
  }

  [[noreturn]] void Fail(const std::string& key, std::string_view message,
                         std::string expected, std::string found) const {
    throw Error(ErrorCode::kDataLoss,
                StrCat("storage '", Printable(key), "' ", message),
                {.offset_bytes = next_bytes_,
                 .expected = std::move(expected),
                 .found = std::move(found)});
  }

  RandomAccessFile& file_;
  Contents& out_;
  MemoryBudget& budget_;
  uint64_t next_bytes_ = 0;
  std::unordered_map<std::string, uint32_t> record_of_key_;
  std::vector<int64_t> num_elements_;  // By record.
};

}  // namespace

Contents ReadLegacyContents(RandomAccessFile& file, MemoryBudget& budget) {
  PickleReader reader(file, 0, file.size_bytes(), budget);
  ReadHeader(reader, budget);
  Contents contents;
  contents.is_zip = false;
  StorageStream stream(file, contents, budget);
  {
    TreeBuilder builder(contents.tree, budget);
    StorageTable storages(
        builder, StorageTable::Container::kLegacy,
        [&](StorageInfo& storage) { stream.Resolve(storage); });
    PickleMachine(reader, builder, &storages).Run();
  }
  const ValueTree keys = ReadPlainPickle(reader, budget);
  stream.Locate(reader.offset_bytes(), Value(keys, keys.root));
  return contents;
}

}  // namespace muonstore::torchfile
