#include "src/tensor/value_difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/base/str.h"

namespace muonstore {
namespace {

constexpr size_t kBlockElements = 1024;

}  // namespace

void ValueDifference::Compare(DType dtype, std::span<const std::byte> a,
                              std::span<const std::byte> b,
                              int64_t first_index) {
  const auto item = static_cast<size_t>(SizeBytes(dtype));
  for (size_t at = 0; at < a.size(); at += kBlockElements * item) {
    const size_t size = std::min(kBlockElements * item, a.size() - at);
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    CompareBlock(dtype, a.subspan(at, size), b.subspan(at, size),
                 first_index + static_cast<int64_t>(at / item));
  }
}

void ValueDifference::CompareBlock(DType dtype, std::span<const std::byte> a,
                                   std::span<const std::byte> b,
                                   int64_t first_index) {
  const auto item = static_cast<size_t>(SizeBytes(dtype));
  const size_t count = a.size() / item;
  std::array<double, kBlockElements> x{};
  std::array<double, kBlockElements> y{};
  ConvertToF64(dtype, a, std::span(x).first(count));
  ConvertToF64(dtype, b, std::span(y).first(count));
  for (size_t i = 0; i < count; ++i) {
    const bool same_bits =
        std::memcmp(a.data() + i * item, b.data() + i * item, item) == 0;
    if (same_bits || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const int64_t index = first_index + static_cast<int64_t>(i);
    first_ = first_ < 0 ? index : std::min(first_, index);
    ++count_;
    AddLargest(std::abs(x[i] - y[i]));
  }
}

// An undefined difference is the largest of all.
void ValueDifference::AddLargest(double difference) {
  largest_ = std::isnan(difference) || std::isnan(largest_)
                 ? std::numeric_limits<double>::quiet_NaN()
                 : std::max(largest_, difference);
}

void ValueDifference::Merge(const ValueDifference& other) {
  if (other.count_ == 0) return;
  first_ = first_ < 0 ? other.first_ : std::min(first_, other.first_);
  count_ += other.count_;
  AddLargest(other.largest_);
}

std::string ValueDifference::ToString() const {
  return StrCat(count_, count_ == 1 ? " element" : " elements",
                ", the first at ", first_, ", by at most ",
                FormatNumber(largest_));
}

}  // namespace muonstore
