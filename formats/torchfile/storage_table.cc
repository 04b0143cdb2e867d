#include "formats/torchfile/storage_table.h"

#include <string_view>
#include <utility>

#include "formats/torchfile/damaged.h"
#include "formats/torchfile/globals_policy.h"
#include "formats/torchfile/refusal.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

// Keys and locations are short; the work for each occurrence stays bounded.
constexpr size_t kMaxTextBytes = 1024;

// Python 2 wrote these as bytes.
const std::string& TextOf(const Value& value) {
  const std::string& text =
      value.is(ValueType::kBytes) ? value.AsBytes() : value.AsString();
  if (text.size() > kMaxTextBytes) {
    ThrowDamaged("a persistent id has a long text",
                 StrCat("at most ", kMaxTextBytes, " bytes"),
                 StrCat(text.size()));
  }
  return text;
}

int64_t CountOf(const Value& value, const char* what) {
  const int64_t count = value.is(ValueType::kInt) ? value.AsInt() : -1;
  if (count < 0) {
    ThrowDamaged(StrCat("a persistent id has a bad ", what), "an int >= 0",
                 value.Describe(60));
  }
  return count;
}

std::string Summary(const ValueTree& tree, const StorageInfo& storage) {
  return StrCat(tree.globals[storage.cls].name, " of ", storage.num_elements,
                " at ", Printable(storage.location));
}

bool AreSame(const StorageInfo& a, const StorageInfo& b) {
  return a.cls == b.cls && a.num_elements == b.num_elements &&
         a.record_elements == b.record_elements &&
         a.first_element == b.first_element;
}

}  // namespace

uint64_t StorageBytes(const StorageInfo& storage, int64_t num_elements) {
  return static_cast<uint64_t>(CheckedMultiply(
      num_elements, SizeBytes(storage.dtype), "bytes of a storage"));
}

void StorageTable::ReadClass(const Value& cls, StorageInfo& storage) const {
  if (!cls.is(ValueType::kGlobal)) {
    ThrowDamaged("a persistent id names no storage class", "a global",
                 cls.Describe(60));
  }
  const Global& global = *cls.cls();
  const std::optional<StorageClass> known = StorageClassOf(global);
  if (!known.has_value()) {
    if (RuleOfCall(global) == CallRule::kRefused) {
      ThrowRefused(global);
    }
    ThrowDamaged("a persistent id names no storage class", "torch.<X>Storage",
                 Printable(global.ToString()));
  }
  if (known->quantized) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("quantized storage ", global.ToString()));
  }
  storage.cls = static_cast<uint32_t>(cls.node().value);
  storage.dtype = known->dtype;
  storage.untyped = known->untyped;
}

// (view key, first element, elements) of storage views, which torch 0.3 and
// older wrote.
void StorageTable::ReadView(const Value& view, StorageInfo& storage) const {
  if (view.is_none()) {
    return;
  }
  if (!view.is(ValueType::kTuple) || view.size() != 3) {
    ThrowDamaged("a persistent id has bad view metadata",
                 "None or a tuple of 3", view.Describe(60));
  }
  storage.first_element = CountOf(view.at(1), "view offset");
  storage.num_elements = CountOf(view.at(2), "view size");
  if (storage.first_element > storage.record_elements ||
      storage.num_elements > storage.record_elements - storage.first_element) {
    ThrowDamaged("a storage view leaves its storage",
                 StrCat("at most ", storage.record_elements, " elements"),
                 view.Describe(60));
  }
}

StorageInfo StorageTable::Parse(const Value& id) const {
  const size_t num_fields = container_ == Container::kZip ? 5 : 6;
  if (id.size() != num_fields || TextOf(id.at(0)) != "storage") {
    ThrowDamaged("a persistent id is malformed",
                 StrCat("('storage', class, key, location, numel",
                        num_fields == 6 ? ", view)" : ")"),
                 id.Describe(100));
  }
  StorageInfo storage;
  ReadClass(id.at(1), storage);
  storage.key = TextOf(id.at(2));
  storage.location = TextOf(id.at(3));
  storage.num_elements = CountOf(id.at(4), "element count");
  storage.record_elements = storage.num_elements;
  if (num_fields == 6) {
    ReadView(id.at(5), storage);
  }
  if (storage.location == "meta") {
    throw Error(ErrorCode::kUnsupported,
                "a storage on the meta device has no data; save the tensors "
                "after they were materialized");
  }
  storage.size_bytes = StorageBytes(storage, storage.num_elements);
  return storage;
}

// A storage that occurred before with another view of it. Legal for views of
// legacy storages, and for empty storages, which torch gives one key whatever
// their type.
void StorageTable::RequireSame(const StorageInfo& earlier,
                               const StorageInfo& storage) const {
  const bool is_view = storage.num_elements != storage.record_elements ||
                       earlier.num_elements != earlier.record_elements;
  const bool is_empty = storage.size_bytes + earlier.size_bytes == 0;
  if (!is_empty && (!is_view || storage.cls != earlier.cls ||
                    storage.record_elements != earlier.record_elements)) {
    ThrowDamaged(StrCat("storage '", Printable(storage.key),
                        "' occurs with two types or sizes"),
                 Summary(builder_.tree(), earlier),
                 Summary(builder_.tree(), storage));
  }
}

NodeId StorageTable::Load(NodeId persistent_id) {
  const Value id(builder_.tree(), persistent_id);
  if (!id.is(ValueType::kTuple) || id.size() == 0) {
    ThrowDamaged("a persistent id is malformed", "a tuple", id.Describe(60));
  }
  // A legacy stream of a whole module: ("module", class, file, source).
  if (container_ == Container::kLegacy && id.size() == 4 &&
      TextOf(id.at(0)) == "module") {
    return id.at(1).id();
  }
  StorageInfo storage = Parse(id);
  resolver_(storage);
  while (by_record_.size() <= storage.record) {
    builder_.budget().PushBack(by_record_, kNoNode);
  }
  NodeId& known = by_record_[storage.record];
  if (known == kNoNode) {
    return known = builder_.Storage(std::move(storage));
  }
  const StorageInfo& earlier = Value(builder_.tree(), known).AsStorage();
  if (AreSame(earlier, storage)) {
    return known;
  }
  RequireSame(earlier, storage);
  return builder_.Storage(std::move(storage));
}

}  // namespace muonstore::torchfile
