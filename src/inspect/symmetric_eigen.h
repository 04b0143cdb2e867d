// Eigenvalues and eigenvectors of a small dense symmetric matrix.
//
// What: Householder reduction to tridiagonal form, then implicit QR steps with
//   Wilkinson shifts, all in double. Backward stable: each eigenvalue is off by
//   a small multiple of 2^-52 times the largest one.
// Ownership: works on its own copy.
// Threads: pure functions.
// Failures: Error(kInvalidArgument) for a wrong size; entries must be finite.

#ifndef MUONSTORE_SRC_INSPECT_SYMMETRIC_EIGEN_H_
#define MUONSTORE_SRC_INSPECT_SYMMETRIC_EIGEN_H_

#include <cstdint>
#include <vector>

namespace muonstore {

struct SymmetricEigen {
  std::vector<double> values;  // Descending.
  // Row i (n entries) is the unit vector of values[i]; empty if not asked for.
  std::vector<double> vectors;
};

enum class EigenParts { kValues, kValuesAndVectors };

// `matrix` is n x n, row-major, both triangles filled.
SymmetricEigen EigenDecompose(std::vector<double> matrix, int64_t n,
                              EigenParts parts);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_SYMMETRIC_EIGEN_H_
