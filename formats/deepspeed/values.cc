#include "formats/deepspeed/values.h"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

#include "muonstore/dtype.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {

using torchfile::Value;
using torchfile::ValueType;

namespace {

// Numbers of a list, or nullopt if it holds anything else.
std::optional<std::vector<double>> NumberList(Value value) {
  std::vector<double> numbers;
  for (size_t i = 0; i < value.size(); ++i) {
    const Value item = value.at(i);
    if (!item.is(ValueType::kInt) && !item.is(ValueType::kFloat)) {
      return std::nullopt;
    }
    numbers.push_back(item.AsNumber());
  }
  return numbers;
}

Scalar TensorToScalar(const torchfile::TorchFile& file, Value value) {
  const torchfile::TensorInfo& tensor = value.AsTensor();
  if (tensor.shape.num_elements() != 1 || IsComplex(tensor.dtype)) {
    return value.Describe();
  }
  std::array<std::byte, 16> buffer{};
  const auto bytes =
      std::span(buffer).first(static_cast<size_t>(SizeBytes(tensor.dtype)));
  file.ReadElements(tensor, 0, bytes);
  double number = 0;
  ConvertToF64(tensor.dtype, bytes, std::span(&number, 1));
  // A counter in a float tensor is still a counter.
  constexpr double kExactLimit = 9007199254740992.0;
  if (number == std::floor(number) && std::abs(number) < kExactLimit) {
    return static_cast<int64_t>(number);
  }
  return number;
}

}  // namespace

bool HasContent(const std::optional<Value>& value) {
  return value && !value->is_none() &&
         !(value->is(ValueType::kDict) && value->size() == 0);
}

std::optional<Value> Lookup(std::optional<Value> value,
                            std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (!value || !value->is(ValueType::kDict)) {
      return std::nullopt;
    }
    value = value->Find(key);
  }
  return value;
}

std::optional<bool> LookupBool(const std::optional<Value>& value,
                               std::initializer_list<std::string_view> keys) {
  const auto found = Lookup(value, keys);
  return found && found->is(ValueType::kBool) ? std::optional(found->AsBool())
                                              : std::nullopt;
}

std::optional<int64_t> LookupInt(const std::optional<Value>& value,
                                 std::initializer_list<std::string_view> keys) {
  const auto found = Lookup(value, keys);
  return found && found->is(ValueType::kInt) ? std::optional(found->AsInt())
                                             : std::nullopt;
}

std::optional<std::string> LookupString(
    const std::optional<Value>& value,
    std::initializer_list<std::string_view> keys) {
  const auto found = Lookup(value, keys);
  return found && found->is(ValueType::kString)
             ? std::optional(std::string(found->AsString()))
             : std::nullopt;
}

Scalar ToScalar(const torchfile::TorchFile& file, Value value) {
  switch (value.type()) {
    case ValueType::kNone:
      return std::monostate();
    case ValueType::kBool:
      return value.AsBool();
    case ValueType::kInt:
      return value.AsInt();
    case ValueType::kFloat:
      return value.AsNumber();
    case ValueType::kString:
      return std::string(value.AsString());
    case ValueType::kTensor:
      return TensorToScalar(file, value);
    case ValueType::kList:
    case ValueType::kTuple:
      if (auto numbers = NumberList(value)) {
        return *std::move(numbers);
      }
      return value.Describe();
    default:
      return value.Describe();
  }
}

bool IsScalarState(Value value) {
  return !value.is(ValueType::kTensor) || value.AsTensor().shape.rank() == 0;
}

std::vector<int64_t> ToIntList(Value value) {
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < value.size(); ++i) {
    const int64_t number = value.at(i).AsInt();
    if (number < 0) {
      throw Error(ErrorCode::kDataLoss, "a count is negative",
                  {.found = StrCat(number)});
    }
    numbers.push_back(number);
  }
  return numbers;
}

bool VersionBefore(std::string_view version, const std::array<int, 3>& limit) {
  std::array<int, 3> parts{};
  for (int& part : parts) {
    const auto result =
        std::from_chars(version.data(), version.data() + version.size(), part);
    if (result.ec != std::errc()) {
      return false;
    }
    version.remove_prefix(static_cast<size_t>(result.ptr - version.data()));
    if (version.starts_with('.')) {
      version.remove_prefix(1);
    }
  }
  return parts < limit;
}

std::vector<NamedShape> ToNamedShapes(Value value) {
  std::vector<NamedShape> shapes;
  shapes.reserve(value.size());
  for (size_t i = 0; i < value.size(); ++i) {
    const auto [name, size] = value.entry(i);
    try {
      shapes.push_back({std::string(name.AsString()), Shape(ToIntList(size))});
    } catch (const Error& error) {
      throw error.WithTensor(name.Describe());
    }
  }
  return shapes;
}

}  // namespace muonstore::deepspeed
