#include "tools/ckpt_inspect/tensor_values.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

// NumPy's limits: beyond kMaxShown values only the edges of each axis.
constexpr int64_t kMaxShown = 1000;
constexpr int64_t kEdge = 3;

using Bytes = std::span<const std::byte>;

int64_t Count(const std::vector<int64_t>& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1},
                         std::multiplies<>());
}

template <typename T>
T Load(Bytes element) {
  T value{};
  std::memcpy(&value, element.data(), sizeof(value));
  return value;
}

double AsDouble(DType dtype, Bytes element) {
  double value = 0;
  ConvertToF64(dtype, element, std::span(&value, 1));
  return value;
}

// Real type of the two parts of a complex number.
DType PartOf(DType dtype) {
  if (dtype == DType::kC128) return DType::kF64;
  return dtype == DType::kC64 ? DType::kF32 : DType::kF16;
}

std::string RealText(DType dtype, Bytes element) {
  if (dtype == DType::kBool) {
    return Load<uint8_t>(element) != 0 ? "true" : "false";
  }
  if (dtype == DType::kI64) return StrCat(Load<int64_t>(element));
  if (dtype == DType::kU64) return StrCat(Load<uint64_t>(element));
  const double value = AsDouble(dtype, element);
  return dtype == DType::kF64 ? FormatNumber(value) : FloatText(value);
}

Json RealJson(DType dtype, Bytes element) {
  if (dtype == DType::kBool) return Load<uint8_t>(element) != 0;
  if (dtype == DType::kI64) return Load<int64_t>(element);
  if (dtype == DType::kU64) return Load<uint64_t>(element);
  const double value = AsDouble(dtype, element);
  if (IsFloatingPoint(dtype)) return ToJson(value);
  return static_cast<int64_t>(value);
}

// Walks a tensor axis by axis.
class TextWriter {
 public:
  TextWriter(DType dtype, const std::vector<int64_t>& dims, Bytes data)
      : dtype_(dtype),
        dims_(dims),
        data_(data),
        shorten_(Count(dims) > kMaxShown) {}

  std::string Run() {
    Write(0, 0);
    return std::move(out_);
  }

 private:
  void Write(size_t axis, int64_t index) {
    if (axis == dims_.size()) {
      const auto bytes = static_cast<size_t>(SizeBytes(dtype_));
      out_ += ValueText(
          dtype_, data_.subspan(static_cast<size_t>(index) * bytes, bytes));
      return;
    }
    const int64_t length = dims_[axis];
    const bool last = axis + 1 == dims_.size();
    const std::string separator =
        last ? ", " : ",\n" + std::string(axis + 1, ' ');
    out_ += '[';
    for (int64_t i = 0; i < length; ++i) {
      if (i > 0) out_ += separator;
      if (shorten_ && length > 2 * kEdge && i == kEdge) {
        out_ += "..." + separator;
        i = length - kEdge;
      }
      Write(axis + 1, index * length + i);
    }
    out_ += ']';
  }

  DType dtype_;
  const std::vector<int64_t>& dims_;
  Bytes data_;
  bool shorten_;
  std::string out_;
};

Json NestedJson(DType dtype, std::span<const int64_t> dims, Bytes data) {
  if (dims.empty()) return ValueJson(dtype, data);
  Json list = Json::array();
  if (dims[0] == 0) return list;
  const size_t part = data.size() / static_cast<size_t>(dims[0]);
  for (int64_t i = 0; i < dims[0]; ++i) {
    list.push_back(
        NestedJson(dtype, dims.subspan(1),
                   data.subspan(static_cast<size_t>(i) * part, part)));
  }
  return list;
}

}  // namespace

std::string ValueText(DType dtype, Bytes element) {
  if (!IsComplex(dtype)) return RealText(dtype, element);
  const DType part = PartOf(dtype);
  const size_t half = element.size() / 2;
  std::string imaginary = RealText(part, element.subspan(half));
  if (imaginary[0] != '-') imaginary = "+" + imaginary;
  return StrCat("(", RealText(part, element.first(half)), imaginary, "j)");
}

Json ValueJson(DType dtype, Bytes element) {
  if (!IsComplex(dtype)) return RealJson(dtype, element);
  const DType part = PartOf(dtype);
  const size_t half = element.size() / 2;
  return Json::array({RealJson(part, element.first(half)),
                      RealJson(part, element.subspan(half))});
}

std::string TensorText(DType dtype, const std::vector<int64_t>& dims,
                       Bytes data) {
  // NumPy's form; the other dimensions may be huge.
  if (data.empty()) return "[]";
  return TextWriter(dtype, dims, data).Run();
}

Json TensorJson(DType dtype, const std::vector<int64_t>& dims, Bytes data) {
  // Nothing nested in a huge number of lists is still nothing.
  if (data.empty() && std::any_of(dims.begin(), dims.end(), [](int64_t dim) {
        return dim > kMaxShown;
      })) {
    return Json::array();
  }
  return NestedJson(dtype, dims, data);
}

}  // namespace muonstore::tools
