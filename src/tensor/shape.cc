#include "muonstore/shape.h"

#include <algorithm>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

void RequireNotNegative(int64_t value, const char* what) {
  if (value < 0) {
    throw Error(ErrorCode::kDataLoss, StrCat(what, " is negative"),
                {.expected = "at least 0", .found = std::to_string(value)});
  }
}

[[noreturn]] void ThrowOverflow(int64_t a, char sign, int64_t b,
                                const char* what) {
  throw Error(
      ErrorCode::kDataLoss,
      StrCat(what, " does not fit into 64 bits: ", a, " ", sign, " ", b));
}

// Zero where any dimension is, however large the others are, as in torch.
int64_t CountElements(const std::vector<int64_t>& dims) {
  for (const int64_t dim : dims) {
    RequireNotNegative(dim, "a tensor dimension");
  }
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) {
    return 0;
  }
  int64_t count = 1;
  for (const int64_t dim : dims) {
    count = CheckedMultiply(count, dim, "the element count of a tensor");
  }
  return count;
}

}  // namespace

Shape::Shape(std::vector<int64_t> dims)
    : dims_(std::move(dims)), num_elements_(CountElements(dims_)) {}

std::vector<int64_t> Shape::ContiguousStrides() const {
  std::vector<int64_t> strides(dims_.size());
  // Unsigned, because only with a dimension of 0 can this wrap around.
  uint64_t stride = 1;
  for (size_t axis = dims_.size(); axis-- > 0;) {
    strides[axis] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(dims_[axis], 1));
  }
  return strides;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (size_t axis = 0; axis < dims_.size(); ++axis) {
    text += StrCat(axis == 0 ? "" : ", ", dims_[axis]);
  }
  return text + "]";
}

int64_t CheckedMultiply(int64_t a, int64_t b, const char* what) {
  RequireNotNegative(a, what);
  RequireNotNegative(b, what);
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    ThrowOverflow(a, '*', b, what);
  }
  return product;
}

int64_t CheckedAdd(int64_t a, int64_t b, const char* what) {
  RequireNotNegative(a, what);
  RequireNotNegative(b, what);
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    ThrowOverflow(a, '+', b, what);
  }
  return sum;
}

}  // namespace muonstore
