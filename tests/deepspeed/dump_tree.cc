#include "tests/deepspeed/dump_tree.h"

#include <map>

#include "src/base/str.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::deepspeed {
namespace {

using torchfile::NodeId;
using torchfile::TensorInfo;
using torchfile::TorchFile;
using torchfile::Value;
using torchfile::ValueType;

template <typename T>
std::string List(const std::vector<T>& numbers) {
  std::string text;
  for (const T number : numbers) {
    text += StrCat(text.empty() ? "" : ",", number);
  }
  return "[" + text + "]";
}

class Dumper {
 public:
  explicit Dumper(const TorchFile& file) : file_(file) {}

  std::vector<std::string> Run() {
    Dump("", file_.root());
    return std::move(lines_);
  }

 private:
  void Add(const std::string& path, const std::string& text) {
    lines_.push_back(path + ": " + text);
  }

  void Dump(const std::string& path, const Value& value) {
    switch (value.type()) {
      case ValueType::kTensor:
        return DumpTensor(path, value);
      case ValueType::kGlobal:
        return Add(path, "global " + value.cls()->ToString());
      case ValueType::kList:
      case ValueType::kTuple:
      case ValueType::kSet:
      case ValueType::kDict:
      case ValueType::kObject:
        return DumpContainer(path, value);
      case ValueType::kBool:
        return Add(path, StrCat("bool ", value.AsBool()));
      default:
        return Add(path, value.Describe(10000));
    }
  }

  void DumpContainer(const std::string& path, const Value& value) {
    const std::string cls = value.cls() ? " " + value.cls()->ToString() : "";
    Add(path, StrCat(ValueTypeName(value.type()), cls, " made ",
                     static_cast<int>(value.node().construction)));
    const bool is_dict =
        value.is(ValueType::kDict) || value.is(ValueType::kObject);
    for (size_t i = 0; i < value.size(); ++i) {
      if (is_dict) {
        const auto [key, item] = value.entry(i);
        Dump(StrCat(path, "/", key.Describe(10000)), item);
      } else {
        Dump(StrCat(path, "/", i), value.at(i));
      }
    }
    for (size_t i = 0; value.arg(i).has_value(); ++i) {
      Dump(StrCat(path, "/arg", i), *value.arg(i));
    }
    for (const NodeId item : value.list_items()) {
      Dump(path + "/item", Value(value.tree(), item));
    }
    if (const auto state = value.state()) {
      Dump(path + "/state", *state);
    }
  }

  void DumpTensor(const std::string& path, const Value& value) {
    const TensorInfo& tensor = value.AsTensor();
    const auto& storage = file_.tree().storages[tensor.storage];
    const auto number =
        numbers_.try_emplace(tensor.storage, numbers_.size()).first->second;
    Add(path,
        StrCat("tensor ", DTypeName(tensor.dtype), " ", tensor.shape.ToString(),
               " strides ", List(tensor.strides), " at ", tensor.storage_offset,
               " of ", storage.num_elements, " storage ",
               storage.num_elements == 0 ? "none" : StrCat(number), " ",
               storage.location, tensor.requires_grad ? " grad" : "", " crc ",
               torchfile::SlowCrc32(torchfile::ReadAll(file_, tensor))));
    if (tensor.attributes != torchfile::kNoNode) {
      Dump(path + "/attributes", Value(file_.tree(), tensor.attributes));
    }
  }

  const TorchFile& file_;
  std::map<uint32_t, size_t> numbers_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> DumpTree(const TorchFile& file) {
  return Dumper(file).Run();
}

}  // namespace muonstore::deepspeed
