// What a partitioning needs to know of a parameter.
//
// What: name, logical shape, dtype of the compute weight, param group,
//   optimizer and matrix layout of one model parameter.
// Ownership, threads: a plain value.

#ifndef MUONSTORE_PARAMETER_H_
#define MUONSTORE_PARAMETER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "muonstore/dtype.h"
#include "muonstore/matrix_layout.h"
#include "muonstore/shape.h"

namespace muonstore {

enum class Optimizer {
  kNone,  // Frozen: no optimizer state.
  kMuon,
  kAdam,
  kOther,  // Anything else; its state kinds pass through.
};

// "none", "muon", "adam", "other".
std::string_view OptimizerName(Optimizer optimizer);

struct ParameterSpec {
  std::string name;
  Shape shape;
  DType weight_dtype = DType::kBF16;
  int32_t group = 0;  // Index of the param group.
  Optimizer optimizer = Optimizer::kMuon;
  MatrixLayout layout = MatrixLayout::Whole();
};

}  // namespace muonstore

#endif  // MUONSTORE_PARAMETER_H_
