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

// Which optimizer updates a parameter. Values are not stored in files.
enum class Optimizer {
  kNone,  // Frozen: no optimizer state.
  kMuon,
  kAdam,
  kOther,  // Anything else; its state kinds pass through.
};

// "none", "muon", "adam", "other".
std::string_view OptimizerName(Optimizer optimizer);

// One parameter of the model. Specs are listed in module order unless a rule
// says otherwise.
struct ParameterSpec {
  // As the module names it; any bytes, unique within the model.
  std::string name;
  // The whole logical shape, never a rank's piece or a placeholder.
  Shape shape;
  // Of the compute weight; masters and momentum do not depend on it.
  DType weight_dtype = DType::kBF16;
  // Index of the param group, from 0.
  int32_t group = 0;
  Optimizer optimizer = Optimizer::kMuon;
  // How Muon sees the tensor as matrices.
  MatrixLayout layout = MatrixLayout::Whole();
};

}  // namespace muonstore

#endif  // MUONSTORE_PARAMETER_H_
