#include "tests/torchfile/same_values.h"

#include <utility>
#include <vector>

#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

std::string NameOf(const Global& global) {
  return (global.module == "__builtin__" ? "builtins" : global.module) + "." +
         global.name;
}

class Comparer {
 public:
  Comparison Run(const Value& a, const Value& b) {
    Push("", a, b);
    while (!pending_.empty() && result_.difference.empty()) {
      const auto [path, one, other] = std::move(pending_.back());
      pending_.pop_back();
      path_ = path;
      CompareValues(one, other);
    }
    return std::move(result_);
  }

 private:
  struct Pair {
    std::string path;
    Value a;
    Value b;
  };

  void Push(std::string path, const Value& a, const Value& b) {
    pending_.push_back({std::move(path), a, b});
  }
  void PushChild(const std::string& step, const Value& a, NodeId child_a,
                 const Value& b, NodeId child_b) {
    if ((child_a == kNoNode) != (child_b == kNoNode)) {
      Differ(step + " is there in one only");
    } else if (child_a != kNoNode) {
      // The end of a deep path is enough.
      const size_t cut = path_.size() > 200 ? path_.size() - 200 : 0;
      Push(StrCat(path_.substr(cut), "/", step), Value(a.tree(), child_a),
           Value(b.tree(), child_b));
    }
  }
  void Differ(const std::string& what) {
    if (result_.difference.empty()) {
      result_.difference = StrCat(path_, ": ", what);
    }
  }
  template <typename T>
  void Expect(const T& a, const T& b, const std::string& what) {
    if (a != b) {
      Differ(what);
    }
  }

  // Values that have an identity must correspond one to one.
  bool IsKnown(const Value& a, const Value& b) {
    const auto [to, is_new] = forward_.try_emplace(a.id(), b.id());
    const auto [back, is_new_back] = backward_.try_emplace(b.id(), a.id());
    if (to->second != b.id() || back->second != a.id()) {
      Differ("is shared with other values");
    }
    return !is_new;
  }

  void CompareValues(const Value& a, const Value& b);
  void CompareByteArray(const Value& a, const Value& b);
  void CompareItems(const Value& a, const Value& b);
  void CompareParts(const Value& a, const Value& b);
  void CompareTensors(const Value& a, const Value& b);
  void CompareStorages(const Value& a, uint32_t in_a, const Value& b,
                       uint32_t in_b);

  Comparison result_;
  std::string path_;
  std::vector<Pair> pending_;
  std::map<NodeId, NodeId> forward_;
  std::map<NodeId, NodeId> backward_;
  std::map<uint32_t, uint32_t> storages_back_;
};

bool HasIdentity(const Value& value) {
  const bool is_plain_empty_tuple = value.is(ValueType::kTuple) &&
                                    value.size() == 0 && value.cls() == nullptr;
  return value.type() >= ValueType::kString && !is_plain_empty_tuple &&
         !value.is(ValueType::kGlobal) && !value.is(ValueType::kStorage);
}

void Comparer::CompareValues(const Value& a, const Value& b) {
  if (a.is(ValueType::kBytes) && b.is(ValueType::kObject)) {
    return CompareByteArray(a, b);
  }
  if (a.type() != b.type()) {
    return Differ(StrCat(a.Describe(), " and ", b.Describe()));
  }
  if (HasIdentity(a) && IsKnown(a, b)) {
    return;
  }
  switch (a.type()) {
    case ValueType::kBool:
    case ValueType::kInt:
    case ValueType::kFloat:
      return Expect(a.node().value, b.node().value, "another number");
    case ValueType::kBigInt:
    case ValueType::kString:
      return Expect(a.tree().Text(a.id()), b.tree().Text(b.id()),
                    "another text");
    case ValueType::kBytes:
      Expect(a.AsBytes(), b.AsBytes(), "other bytes");
      return CompareParts(a, b);
    case ValueType::kGlobal:
      return Expect(NameOf(*a.cls()), NameOf(*b.cls()), "another global");
    case ValueType::kTensor:
      CompareTensors(a, b);
      return CompareParts(a, b);
    case ValueType::kStorage:
      return CompareStorages(a, static_cast<uint32_t>(a.node().value), b,
                             static_cast<uint32_t>(b.node().value));
    case ValueType::kNone:
      return;
    default:
      CompareItems(a, b);
      return CompareParts(a, b);
  }
}

// A bytearray of protocol 5, and the call that protocol 2 has for it.
void Comparer::CompareByteArray(const Value& a, const Value& b) {
  if (a.cls() == nullptr || NameOf(*b.cls()) != "builtins.bytearray" ||
      !b.arg(1).has_value() || b.arg(1)->AsString() != "latin-1") {
    return Differ("no bytearray");
  }
  std::string text;
  for (const char c : a.AsBytes()) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x80 ? std::string(1, c)
                        : std::string{static_cast<char>(0xC0 + byte / 64),
                                      static_cast<char>(0x80 + byte % 64)};
  }
  Expect(text, b.arg(0)->AsString(), "another bytearray");
}

void Comparer::CompareItems(const Value& a, const Value& b) {
  const auto items_a = a.tree().Items(a.id());
  const auto items_b = b.tree().Items(b.id());
  if (items_a.size() != items_b.size()) {
    return Differ(StrCat(items_a.size(), " and ", items_b.size(), " items"));
  }
  for (size_t i = 0; i < items_a.size(); ++i) {
    PushChild(StrCat(i), a, items_a[i], b, items_b[i]);
  }
}

void Comparer::CompareParts(const Value& a, const Value& b) {
  const Parts none;
  const Parts* of_a = a.tree().PartsOf(a.id());
  const Parts* of_b = b.tree().PartsOf(b.id());
  const Parts& parts_a = of_a == nullptr ? none : *of_a;
  const Parts& parts_b = of_b == nullptr ? none : *of_b;
  Expect(parts_a.cls == kNoNode, parts_b.cls == kNoNode, "has a class");
  if (parts_a.cls != kNoNode && parts_b.cls != kNoNode) {
    Expect(NameOf(a.tree().globals[parts_a.cls]),
           NameOf(b.tree().globals[parts_b.cls]), "another class");
  }
  if (!a.is(ValueType::kSet)) {
    Expect(a.node().construction, b.node().construction, "made otherwise");
  }
  PushChild("args", a, parts_a.args, b, parts_b.args);
  PushChild("kwargs", a, parts_a.kwargs, b, parts_b.kwargs);
  PushChild("state", a, parts_a.state, b, parts_b.state);
  const auto list_a = a.list_items();
  const auto list_b = b.list_items();
  Expect(list_a.size(), list_b.size(), "another number of list items");
  for (size_t i = 0; i < list_a.size() && i < list_b.size(); ++i) {
    PushChild(StrCat("list/", i), a, list_a[i], b, list_b[i]);
  }
}

void Comparer::CompareTensors(const Value& a, const Value& b) {
  const TensorInfo& one = a.AsTensor();
  const TensorInfo& other = b.AsTensor();
  Expect(one.dtype, other.dtype, "another dtype");
  Expect(one.shape.dims(), other.shape.dims(), "another shape");
  Expect(one.strides, other.strides, "other strides");
  Expect(one.storage_offset, other.storage_offset, "another offset");
  Expect(one.requires_grad, other.requires_grad, "requires_grad");
  Expect(one.is_conj, other.is_conj, "is_conj");
  Expect(one.is_neg, other.is_neg, "is_neg");
  Expect(one.is_parameter, other.is_parameter, "is_parameter");
  PushChild("attributes", a, one.attributes, b, other.attributes);
  CompareStorages(a, one.storage, b, other.storage);
}

void Comparer::CompareStorages(const Value& a, uint32_t in_a, const Value& b,
                               uint32_t in_b) {
  const StorageInfo& one = a.tree().storages[in_a];
  const StorageInfo& other = b.tree().storages[in_b];
  const auto to = result_.storages.try_emplace(in_a, in_b).first;
  const auto back = storages_back_.try_emplace(in_b, in_a).first;
  if (to->second != in_b || back->second != in_a) {
    Differ("its storage is shared with other tensors");
  }
  Expect(one.location, other.location, "another location");
  Expect(a.tree().globals[one.cls].name, b.tree().globals[other.cls].name,
         "another storage class");
  Expect(one.num_elements, other.num_elements, "a storage of another size");
}

}  // namespace

Comparison Compare(const Value& a, const Value& b) {
  return Comparer().Run(a, b);
}

}  // namespace muonstore::torchfile
