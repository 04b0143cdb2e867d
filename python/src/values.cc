#include "python/src/values.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <unordered_map>
#include <utility>

#include "muonstore/dtype.h"
#include "muonstore/error.h"
#include "python/src/buffers.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using torchfile::Global;
using torchfile::NodeId;
using torchfile::Value;
using torchfile::ValueType;

// Python's own readers of pickles give up at about this depth, too.
constexpr int kMaxDepth = 400;

nb::object Text(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(
      text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass"));
}

bool IsNumpyScalar(const Value& value) {
  const Global* cls = value.cls();
  return cls != nullptr && cls->name == "scalar" &&
         cls->module.starts_with("numpy.") &&
         cls->module.ends_with(".multiarray");
}

class Maker {
 public:
  Maker(const torchfile::TreeRef& tree, const nb::object& finish)
      : tree_(tree),
        finish_(finish),
        package_(nb::module_::import_("muonstore._arrays")) {}

  nb::object Make(const Value& value, int depth) {
    if (depth > kMaxDepth) {
      throw Error(ErrorCode::kUnsupported, "values are nested too deeply",
                  {.file = tree_.file->path()});
    }
    if (tree_.is_state && tree_.is_state(value.id())) return nb::none();
    const auto made = made_.find(value.id());
    return made != made_.end() ? made->second : MakeNew(value, depth);
  }

 private:
  nb::object MakeNew(const Value& value, int depth) {
    switch (value.type()) {
      case ValueType::kNone:
        return nb::none();
      case ValueType::kBool:
        return nb::bool_(value.AsBool());
      case ValueType::kInt:
        return nb::int_(value.AsInt());
      case ValueType::kBigInt:
        return BigInt(value);
      case ValueType::kFloat:
        return nb::float_(value.AsNumber());
      case ValueType::kString:
        return Text(value.AsString());
      case ValueType::kBytes:
        return Bytes(value);
      case ValueType::kList:
      case ValueType::kTuple:
      case ValueType::kSet:
        return Sequence(value, depth);
      case ValueType::kDict:
        return Dict(value, depth);
      case ValueType::kTensor:
        return Remember(value, Tensor(value));
      case ValueType::kGlobal:
      case ValueType::kObject:
      case ValueType::kStorage:
        break;
    }
    return Remember(value, Object(value));
  }

  nb::object Remember(const Value& value, nb::object object) {
    made_.emplace(value.id(), object);
    return object;
  }

  static nb::object BigInt(const Value& value) {
    const std::string& bytes = value.tree().Text(value.id());
    return nb::borrow(reinterpret_cast<PyObject*>(&PyLong_Type))
        .attr("from_bytes")(nb::bytes(bytes.data(), bytes.size()), "little",
                            nb::arg("signed") = true);
  }

  static nb::object Bytes(const Value& value) {
    const std::string& bytes = value.AsBytes();
    if (value.cls() != nullptr && value.cls()->name == "bytearray") {
      return nb::steal(PyByteArray_FromStringAndSize(
          bytes.data(), static_cast<Py_ssize_t>(bytes.size())));
    }
    return nb::bytes(bytes.data(), bytes.size());
  }

  nb::object Sequence(const Value& value, int depth) {
    nb::list items;
    if (value.is(ValueType::kList)) Remember(value, items);
    for (size_t i = 0; i < value.size(); ++i) {
      items.append(Make(value.at(i), depth + 1));
    }
    if (value.is(ValueType::kList)) return items;
    if (value.is(ValueType::kTuple)) return nb::tuple(items);
    return nb::steal(value.cls() == nullptr ? PySet_New(items.ptr())
                                            : PyFrozenSet_New(items.ptr()));
  }

  nb::object Dict(const Value& value, int depth) {
    nb::dict items;
    Remember(value, items);
    for (size_t i = 0; i < value.size(); ++i) {
      const auto [key, item] = value.entry(i);
      items[Make(key, depth + 1)] = Make(item, depth + 1);
    }
    return items;
  }

  nb::object Tensor(const Value& value) {
    const torchfile::TensorInfo& info = value.AsTensor();
    const std::string dtype(DTypeName(info.dtype));
    nb::object array = package_.attr("empty")(info.shape.dims(), dtype);
    {
      const WritableBuffer buffer(array);
      tree_.file->ReadElements(info, 0, buffer.span());
    }
    return finish_(array, dtype, std::string(TorchDTypeName(info.dtype)));
  }

  nb::object Object(const Value& value) {
    if (IsNumpyScalar(value) && value.arg(0) && value.arg(0)->arg(0) &&
        value.arg(1) && value.arg(1)->is(ValueType::kBytes)) {
      const auto dtype = value.arg(0)->arg(0);
      if (dtype->is(ValueType::kString)) {
        return package_.attr("scalar")(Text(dtype->AsString()),
                                       Bytes(*value.arg(1)));
      }
    }
    return package_.attr("Opaque")(Text(value.Describe()), Attributes(value));
  }

  // Plain values that BUILD set: a loss scaler's counters.
  nb::dict Attributes(const Value& value) {
    nb::dict attributes;
    const auto state = value.state();
    if (!state || !state->is(ValueType::kDict)) return attributes;
    for (size_t i = 0; i < state->size(); ++i) {
      const auto [key, item] = state->entry(i);
      const ValueType type = item.type();
      if (key.is(ValueType::kString) &&
          (type == ValueType::kBool || type == ValueType::kInt ||
           type == ValueType::kFloat || type == ValueType::kNone)) {
        attributes[Text(key.AsString())] = Make(item, 0);
      }
    }
    return attributes;
  }

  const torchfile::TreeRef& tree_;
  const nb::object& finish_;
  nb::module_ package_;
  std::unordered_map<NodeId, nb::object> made_;
};

}  // namespace

nb::object ToPython(const torchfile::TreeRef& tree, const nb::object& finish) {
  return Maker(tree, finish).Make(tree.value(), 0);
}

}  // namespace muonstore::python
