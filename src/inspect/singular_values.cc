#include "src/inspect/singular_values.h"

#include <algorithm>
#include <cmath>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/inspect/block_lanczos.h"
#include "src/inspect/symmetric_eigen.h"

namespace muonstore {
namespace {

// Eigenvalues below this part of the largest are rounding noise.
constexpr double kEigenvalueFloor = 1e-14;

void CheckArguments(const MatrixRef& matrix, int64_t count) {
  if (matrix.rows < 0 || matrix.cols < 0 ||
      static_cast<int64_t>(matrix.values.size()) != matrix.rows * matrix.cols) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("matrix of ", matrix.rows, " x ", matrix.cols, " has ",
                       matrix.values.size(), " values"));
  }
  if (count < 1 || count > kMaxSingularValues) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("number of singular values must be 1 to ",
                       kMaxSingularValues, ", not ", count));
  }
}

}  // namespace

SingularValues TopSingularValues(const MatrixRef& matrix, int64_t count) {
  CheckArguments(matrix, count);
  const int64_t side = matrix.smaller_side();
  SingularValues result;
  if (side == 0) return result;
  std::vector<double> eigenvalues;
  if (side <= kExactSide) {
    eigenvalues =
        EigenDecompose(SmallerGram(matrix), side, EigenParts::kValues).values;
  } else {
    LanczosResult lanczos = LargestGramEigenvalues(matrix, count);
    eigenvalues = std::move(lanczos.eigenvalues);
    result.converged = lanczos.converged;
  }
  const double floor = kEigenvalueFloor * std::max(eigenvalues.front(), 0.0);
  for (int64_t i = 0; i < std::min(count, side); ++i) {
    const double value = eigenvalues[static_cast<size_t>(i)];
    result.values.push_back(value > floor ? std::sqrt(value) : 0.0);
  }
  return result;
}

}  // namespace muonstore
