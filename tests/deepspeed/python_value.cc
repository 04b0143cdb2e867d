#include "tests/deepspeed/python_value.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>

#include "tests/torchfile/pickle_builder.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::deepspeed {

namespace pickle = torchfile::pickle;

// Turns a tree into pickle and collects the storages that it meets.
class Pickler {
 public:
  std::string Write(const PythonValue& value) {
    switch (value.type_) {
      case PythonValue::Type::kRaw:
        return value.raw_ + WriteAttributes(value);
      case PythonValue::Type::kList:
        return "](" + WriteItems(value) + "e";
      case PythonValue::Type::kDict:
        return "}(" + WriteItems(value) + "u";
      case PythonValue::Type::kOrderedDict:
        return pickle::OrderedDict() + "(" + WriteItems(value) + "u";
      case PythonValue::Type::kTensor:
        return WriteTensor(value.tensor_);
    }
    return "";
  }

  std::vector<std::string> Payloads() const {
    std::vector<std::string> payloads;
    for (const auto& storage : storages_) {
      payloads.push_back(*storage);
    }
    return payloads;
  }

 private:
  // A raw value with one item is an object and its __dict__.
  std::string WriteAttributes(const PythonValue& value) {
    return value.items_.empty() ? "" : Write(value.items_[0]) + "b";
  }

  std::string WriteItems(const PythonValue& value) {
    std::string out;
    for (size_t i = 0; i < value.items_.size(); ++i) {
      out += (i < value.keys_.size() ? value.keys_[i] : "") +
             Write(value.items_[i]);
    }
    return out;
  }

  std::string WriteTensor(const PythonTensor& tensor) {
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    for (size_t i = tensor.shape.size(); i > 1; --i) {
      strides[i - 2] =
          strides[i - 1] * std::max<int64_t>(1, tensor.shape[i - 1]);
    }
    const std::string args =
        pickle::Tuple({WriteStorage(tensor), pickle::Int(tensor.offset),
                       pickle::Ints(tensor.shape), pickle::Ints(strides),
                       "\x89", pickle::OrderedDict()});
    const std::string rebuild =
        pickle::GlobalName("torch._utils", "_rebuild_tensor_v2");
    if (tensor.ds_id.empty()) {
      return rebuild + args + "R";
    }
    return pickle::Call(
        pickle::GlobalName("torch._tensor", "_rebuild_from_type_v2"),
        {rebuild, pickle::GlobalName("torch", "Tensor"), args,
         pickle::Dict({{"ds_id", pickle::Str(tensor.ds_id)}})});
  }

  std::string WriteStorage(const PythonTensor& tensor) {
    const auto it =
        std::find(storages_.begin(), storages_.end(), tensor.storage);
    const auto key = static_cast<size_t>(it - storages_.begin());
    if (it == storages_.end()) {
      storages_.push_back(tensor.storage);
    }
    const bool is_f32 = tensor.dtype == DType::kF32;
    const auto count = static_cast<int64_t>(tensor.storage->size());
    return pickle::Storage(
        {.cls = is_f32 ? "FloatStorage"
                       : (tensor.dtype == DType::kF16 ? "HalfStorage"
                                                      : "BFloat16Storage"),
         .key = std::to_string(key),
         .num_elements = count / (is_f32 ? 4 : 2)});
  }

  std::vector<std::shared_ptr<std::string>> storages_;
};

PythonValue PythonValue::Raw(std::string opcodes) {
  PythonValue value;
  value.raw_ = std::move(opcodes);
  return value;
}

PythonValue PythonValue::Int(int64_t value) { return Raw(pickle::Int(value)); }

PythonValue PythonValue::Float(double value) {
  std::string big_endian = torchfile::Bytes(value);
  std::reverse(big_endian.begin(), big_endian.end());
  return Raw("G" + big_endian);
}

PythonValue PythonValue::Bool(bool value) {
  return Raw(value ? "\x88" : "\x89");
}

PythonValue PythonValue::Str(const std::string& text) {
  return Raw(pickle::Str(text));
}

PythonValue PythonValue::Ints(const std::vector<int64_t>& values) {
  PythonValue list = List();
  for (const int64_t value : values) {
    list.Add(Int(value));
  }
  return list;
}

PythonValue PythonValue::Size(const std::vector<int64_t>& dims) {
  return Raw(
      pickle::Call(pickle::GlobalName("torch", "Size"), {pickle::Ints(dims)}));
}

PythonValue PythonValue::List() {
  PythonValue value;
  value.type_ = Type::kList;
  return value;
}

PythonValue PythonValue::Dict() {
  PythonValue value;
  value.type_ = Type::kDict;
  return value;
}

PythonValue PythonValue::OrderedDict() {
  PythonValue value;
  value.type_ = Type::kOrderedDict;
  return value;
}

PythonValue PythonValue::Tensor(PythonTensor tensor) {
  PythonValue value;
  value.type_ = Type::kTensor;
  value.tensor_ = std::move(tensor);
  return value;
}

PythonValue PythonValue::Object(const std::string& module,
                                const std::string& name,
                                PythonValue attributes) {
  PythonValue object = Raw(pickle::GlobalName(module, name) + ")\x81");
  object.Add(std::move(attributes));
  return object;
}

PythonValue& PythonValue::Find(const std::string& pickled_key) {
  const auto it = std::find(keys_.begin(), keys_.end(), pickled_key);
  if (it == keys_.end()) {
    throw std::out_of_range("no key " + pickled_key);
  }
  return items_[static_cast<size_t>(it - keys_.begin())];
}

void PythonValue::SetPickled(const std::string& pickled_key,
                             PythonValue value) {
  const auto it = std::find(keys_.begin(), keys_.end(), pickled_key);
  if (it != keys_.end()) {
    items_[static_cast<size_t>(it - keys_.begin())] = std::move(value);
    return;
  }
  keys_.push_back(pickled_key);
  items_.push_back(std::move(value));
}

void PythonValue::ErasePickled(const std::string& pickled_key) {
  const auto it = std::find(keys_.begin(), keys_.end(), pickled_key);
  if (it == keys_.end()) {
    throw std::out_of_range("no key " + pickled_key);
  }
  items_.erase(items_.begin() + (it - keys_.begin()));
  keys_.erase(it);
}

PythonValue& PythonValue::Get(const std::string& key) {
  return Find(pickle::Str(key));
}
PythonValue& PythonValue::GetInt(int64_t key) { return Find(pickle::Int(key)); }
void PythonValue::Set(const std::string& key, PythonValue value) {
  SetPickled(pickle::Str(key), std::move(value));
}
void PythonValue::SetInt(int64_t key, PythonValue value) {
  SetPickled(pickle::Int(key), std::move(value));
}
void PythonValue::Append(const std::string& key, PythonValue value) {
  keys_.push_back(pickle::Str(key));
  items_.push_back(std::move(value));
}
void PythonValue::Erase(const std::string& key) {
  ErasePickled(pickle::Str(key));
}
void PythonValue::EraseInt(int64_t key) { ErasePickled(pickle::Int(key)); }

std::string TorchFileBytes(const PythonValue& root, const std::string& stem) {
  Pickler pickler;
  const std::string body = pickle::Whole(pickler.Write(root));
  std::vector<torchfile::ZipRecord> records =
      torchfile::TorchRecords(body, pickler.Payloads());
  for (torchfile::ZipRecord& record : records) {
    record.name = stem + record.name.substr(record.name.find('/'));
  }
  return torchfile::BuildZip(records);
}

}  // namespace muonstore::deepspeed
