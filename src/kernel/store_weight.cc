#include "src/kernel/store_weight.h"

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/tensor/training_dtype.h"

namespace muonstore {

void CheckWeights(const ComputeWeights& weights, size_t num_elements) {
  if (weights.bytes.empty()) {
    return;
  }
  RequireTrainingDType(weights.dtype, ErrorCode::kInvalidArgument,
                       "compute weights cannot have this dtype");
  const auto size = static_cast<size_t>(SizeBytes(weights.dtype));
  if (weights.bytes.size() / size != num_elements ||
      weights.bytes.size() % size != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "the compute weights do not fit the master weights",
                {.expected = StrCat(num_elements, " * ", size, " bytes"),
                 .found = StrCat(weights.bytes.size(), " bytes")});
  }
}

void CheckState(const char* what, size_t expected, const StateSpan& found) {
  for (const size_t count : {found.in.size(), found.out.size()}) {
    if (count == expected) continue;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the ", what, " of an update does not fit"),
                {.expected = StrCat(expected, " elements"),
                 .found = StrCat(count, " elements")});
  }
}

}  // namespace muonstore
