#include "formats/torchfile/tensor_rebuild.h"

#include <utility>
#include <vector>

#include "formats/torchfile/damaged.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr size_t kMaxRank = 64;  // Of torch.
constexpr size_t kMaxMetadata = 16;

int64_t NonNegative(const Value& value, const char* what) {
  if (!value.is(ValueType::kInt) || value.AsInt() < 0) {
    ThrowDamaged(StrCat("a tensor has a bad ", what), "an int >= 0",
                 value.Describe(60));
  }
  return value.AsInt();
}

std::vector<int64_t> Dims(const Value& sequence, const char* what) {
  const bool is_sequence =
      sequence.is(ValueType::kTuple) || sequence.is(ValueType::kList);
  if (!is_sequence || sequence.size() > kMaxRank) {
    ThrowDamaged(StrCat("a tensor has a bad ", what),
                 StrCat("a tuple of at most ", kMaxRank, " ints"),
                 is_sequence ? StrCat(sequence.size(), " items")
                             : sequence.Describe(60));
  }
  std::vector<int64_t> dims;
  dims.reserve(sequence.size());
  for (size_t i = 0; i < sequence.size(); ++i) {
    dims.push_back(NonNegative(sequence.at(i), what));
  }
  return dims;
}

// {"conj": True} and {"neg": True}: lazy bits, without which values would be
// wrong in silence.
void ReadMetadata(const Value& metadata, TensorInfo& tensor) {
  if (metadata.is_none()) {
    return;
  }
  if (metadata.size() > kMaxMetadata) {
    ThrowDamaged("a tensor has too much metadata",
                 StrCat("at most ", kMaxMetadata), StrCat(metadata.size()));
  }
  for (size_t i = 0; i < metadata.size(); ++i) {
    const auto [key, value] = metadata.entry(i);
    if (key.AsString() == "conj") {
      tensor.is_conj = value.AsBool();
    } else if (key.AsString() == "neg") {
      tensor.is_neg = value.AsBool();
    } else {
      throw Error(ErrorCode::kUnsupported,
                  StrCat("tensor metadata ", key.Describe(60)));
    }
  }
  if (tensor.is_conj && !IsComplex(tensor.dtype)) {
    ThrowDamaged("a tensor that is not complex is marked as conjugated", "",
                 "");
  }
  const bool can_negate =
      IsComplex(tensor.dtype) || tensor.dtype == DType::kF64 ||
      tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16 ||
      tensor.dtype == DType::kBF16;
  if (tensor.is_neg && !can_negate) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("a lazily negated tensor of ", DTypeName(tensor.dtype)));
  }
}

DType DTypeOf(const Value& value) {
  const Global* global = value.is(ValueType::kGlobal) ? value.cls() : nullptr;
  if (global == nullptr || global->module != "torch") {
    ThrowDamaged("a tensor has a bad dtype", "torch.<dtype>",
                 value.Describe(60));
  }
  const std::optional<DType> dtype = ParseDType(global->ToString());
  if (!dtype.has_value()) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("tensors of ", Printable(global->ToString())));
  }
  return *dtype;
}

void RequireArgs(const Value& args, size_t min_args, size_t max_args) {
  if (args.size() < min_args || args.size() > max_args) {
    ThrowDamaged("a tensor is rebuilt with the wrong number of arguments",
                 StrCat(min_args, " to ", max_args), StrCat(args.size()));
  }
}

// (storage, storage_offset, size, stride, requires_grad, hooks, ...)
TensorInfo FromStorage(CallRule rule, const Value& args) {
  const bool is_v3 = rule == CallRule::kRebuildTensorV3;
  const bool is_old = rule == CallRule::kRebuildTensor;
  RequireArgs(args, is_old ? 4 : is_v3 ? 7 : 6, is_old ? 4 : is_v3 ? 8 : 7);
  TensorInfo tensor;
  const StorageInfo& storage = args.at(0).AsStorage();
  tensor.storage = static_cast<uint32_t>(args.at(0).node().value);
  tensor.dtype = is_v3 ? DTypeOf(args.at(6)) : storage.dtype;
  tensor.storage_offset = NonNegative(args.at(1), "storage offset");
  tensor.shape = Shape(Dims(args.at(2), "size"));
  tensor.strides = Dims(args.at(3), "stride");
  tensor.requires_grad = !is_old && args.at(4).AsInt() != 0;
  const size_t metadata = is_v3 ? 7 : 6;
  if (args.size() > metadata) {
    ReadMetadata(args.at(metadata), tensor);
  }
  CheckView(tensor, storage);
  return tensor;
}

// (data, requires_grad, hooks[, state])
TensorInfo FromParameter(CallRule rule, const Value& args) {
  const bool has_state = rule == CallRule::kRebuildParameterWithState;
  RequireArgs(args, has_state ? 4 : 3, has_state ? 4 : 3);
  TensorInfo tensor = args.at(0).AsTensor();
  tensor.requires_grad = args.at(1).AsInt() != 0;
  tensor.is_parameter = true;
  if (has_state) {
    tensor.attributes = AttributesOf(args.at(3));
  }
  return tensor;
}

}  // namespace

TensorInfo RebuildTensor(CallRule rule, const Value& args) {
  const bool is_parameter = rule == CallRule::kRebuildParameter ||
                            rule == CallRule::kRebuildParameterWithState;
  return is_parameter ? FromParameter(rule, args) : FromStorage(rule, args);
}

NodeId AttributesOf(const Value& state) {
  if (state.is(ValueType::kDict)) {
    return state.id();
  }
  // A subclass with __slots__: (dict or None, slots).
  if (state.is(ValueType::kTuple) && state.size() == 2 &&
      state.at(0).is(ValueType::kDict)) {
    return state.at(0).id();
  }
  return kNoNode;
}

void CheckView(const TensorInfo& tensor, const StorageInfo& storage) {
  const std::vector<int64_t>& dims = tensor.shape.dims();
  if (dims.size() != tensor.strides.size()) {
    ThrowDamaged("a tensor's size and stride differ in length",
                 StrCat(dims.size(), " strides"),
                 StrCat(tensor.strides.size()));
  }
  if (tensor.shape.num_elements() == 0) {
    return;
  }
  int64_t end = CheckedAdd(tensor.storage_offset, 1, "extent of a tensor");
  for (size_t d = 0; d < dims.size(); ++d) {
    end = CheckedAdd(
        end,
        CheckedMultiply(dims[d] - 1, tensor.strides[d], "extent of a tensor"),
        "extent of a tensor");
  }
  const int64_t end_bytes =
      CheckedMultiply(end, SizeBytes(tensor.dtype), "extent of a tensor");
  if (static_cast<uint64_t>(end_bytes) > storage.size_bytes) {
    ThrowDamaged(StrCat("a tensor of shape ", tensor.shape.ToString(),
                        " leaves its storage '", Printable(storage.key), "'"),
                 StrCat("at most ", storage.size_bytes, " bytes"),
                 StrCat(end_bytes));
  }
}

}  // namespace muonstore::torchfile
