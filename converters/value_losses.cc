#include "converters/value_losses.h"

#include <algorithm>
#include <string_view>

#include "muonstore/convert.h"
#include "src/base/str.h"

namespace muonstore {

void ValueLosses::AddOverflows(
    std::span<const SegmentReader::Overflow> overflows, DType dtype) {
  const std::lock_guard lock(mutex_);
  for (const auto& [tensor, num_elements] : overflows) {
    Overflow& overflow = overflows_[tensor];
    overflow.num_elements += num_elements;
    overflow.dtype = dtype;
  }
}

void ValueLosses::AddWeight(size_t weight, const ValueDifference& difference) {
  if (difference.count() == 0) return;
  const std::lock_guard lock(mutex_);
  weights_[weight].Merge(difference);
}

bool ValueLosses::HasOtherThan(const std::vector<std::string>& kinds) const {
  const auto is_other = [&](std::string_view kind) {
    return std::find(kinds.begin(), kinds.end(), kind) == kinds.end();
  };
  const std::lock_guard lock(mutex_);
  return (!overflows_.empty() && is_other(kOverflowLoss)) ||
         (!weights_.empty() && is_other(kWeightsLoss));
}

std::vector<SinkLoss> ValueLosses::List() const {
  const std::lock_guard lock(mutex_);
  const auto name = [&](size_t tensor) {
    return Printable(source_.tensors()[tensor].key.ToString());
  };
  std::vector<SinkLoss> losses;
  for (const auto& [tensor, overflow] : overflows_) {
    const auto& [count, dtype] = overflow;
    losses.push_back(
        {.kind = kOverflowLoss,
         .message = StrCat(name(tensor), ": ", count,
                           count == 1 ? " value" : " values", " beyond ",
                           DTypeName(dtype), ": infinite"),
         .tensors = {tensor}});
  }
  for (const auto& [tensor, difference] : weights_) {
    losses.push_back(
        {.kind = kWeightsLoss,
         .message = StrCat(name(tensor),
                           ": not round(master), which the target has in its "
                           "place: ",
                           difference.ToString()),
         .tensors = {tensor}});
  }
  return losses;
}

}  // namespace muonstore
