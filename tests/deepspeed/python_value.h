// Python values of a torch file, to be built, changed and written by tests.
//
// What: dicts, lists and tensors as a tree that a test may edit before it is
//   written; everything else is a piece of pickle.
// Ownership: values; tensors share their storage, as in torch.
// Failures: std::out_of_range for a key that is not there.
#ifndef MUONSTORE_TESTS_DEEPSPEED_PYTHON_VALUE_H_
#define MUONSTORE_TESTS_DEEPSPEED_PYTHON_VALUE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/dtype.h"

namespace muonstore::deepspeed {

struct PythonTensor {
  DType dtype = DType::kF32;  // kF32, kBF16 or kF16.
  std::vector<int64_t> shape;
  int64_t offset = 0;  // In elements of the storage.
  std::shared_ptr<std::string> storage;
  std::string ds_id;  // An attribute, as on swapped tensors; empty: none.
};

class PythonValue {
 public:
  enum class Type { kRaw, kList, kDict, kOrderedDict, kTensor };

  PythonValue() = default;  // None.
  static PythonValue Raw(std::string opcodes);
  static PythonValue Int(int64_t value);
  static PythonValue Float(double value);
  static PythonValue Bool(bool value);
  static PythonValue Str(const std::string& text);
  static PythonValue Ints(const std::vector<int64_t>& values);  // A list.
  static PythonValue Size(const std::vector<int64_t>& dims);    // torch.Size.
  static PythonValue List();
  static PythonValue Dict();
  static PythonValue OrderedDict();
  static PythonValue Tensor(PythonTensor tensor);
  // An object whose __dict__ is `attributes`.
  static PythonValue Object(const std::string& module, const std::string& name,
                            PythonValue attributes);

  void Add(PythonValue item) { items_.push_back(std::move(item)); }
  size_t size() const { return items_.size(); }
  PythonValue& at(size_t index) { return items_.at(index); }
  // Entries of a dict; `Set` replaces or appends.
  PythonValue& Get(const std::string& key);
  PythonValue& GetInt(int64_t key);
  void Set(const std::string& key, PythonValue value);
  void SetInt(int64_t key, PythonValue value);
  void Append(const std::string& key, PythonValue value);
  void Erase(const std::string& key);
  void EraseInt(int64_t key);
  void RemoveLast() { items_.pop_back(); }
  PythonTensor& tensor() { return tensor_; }

 private:
  friend class Pickler;

  PythonValue& Find(const std::string& pickled_key);
  void SetPickled(const std::string& pickled_key, PythonValue value);
  void ErasePickled(const std::string& pickled_key);

  Type type_ = Type::kRaw;
  std::string raw_ = "N";
  std::vector<std::string> keys_;  // Pickled; of a dict.
  std::vector<PythonValue> items_;
  PythonTensor tensor_;
};

// The bytes of a torch file that holds `root`; `stem` names the folder inside.
std::string TorchFileBytes(const PythonValue& root, const std::string& stem);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_TESTS_DEEPSPEED_PYTHON_VALUE_H_
