// The values of a tensor as text and as JSON.
//
// What: nested brackets like NumPy's, shortened beyond 1000 values; JSON has
//   all of them as nested lists.
// Memory: the values are held once.
// Failures: Error(kUnsupported) for a dtype that has no numbers.

#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_TENSOR_VALUES_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_TENSOR_VALUES_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "muonstore/dtype.h"
#include "tools/common/json.h"

namespace muonstore::tools {

// One value of the stored bytes: "0.1", "-3", "true", "(1+2j)".
std::string ValueText(DType dtype, std::span<const std::byte> element);
// A number, a boolean, [re, im], or "nan".
Json ValueJson(DType dtype, std::span<const std::byte> element);

// `data` holds prod(dims) elements.
std::string TensorText(DType dtype, const std::vector<int64_t>& dims,
                       std::span<const std::byte> data);
Json TensorJson(DType dtype, const std::vector<int64_t>& dims,
                std::span<const std::byte> data);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_TENSOR_VALUES_H_
