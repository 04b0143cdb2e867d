// Matrices for tests: named for the failure that they hunt.
#ifndef MUONSTORE_TESTS_KERNEL_MATRICES_H_
#define MUONSTORE_TESTS_KERNEL_MATRICES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "muonstore/newton_schulz.h"
#include "tests/oracle/newton_schulz_oracle.h"

namespace muonstore {

struct FloatMatrix {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;  // Row-major.
};

FloatMatrix Gaussian(int64_t rows, int64_t cols, uint64_t seed);
// U diag(values) V^T with random orthonormal U, V; as many singular values as
// the smaller side.
FloatMatrix WithSingularValues(int64_t rows, int64_t cols,
                               const std::vector<double>& singular_values,
                               uint64_t seed);
// Gaussian times a factor.
FloatMatrix Scaled(FloatMatrix matrix, double factor);

// Every kind of hard input at one shape: rank 1, rank 4, a spike, all ones,
// condition 1e2, 1e4 and 1e6, a zero row, a zero column, one element.
std::vector<FloatMatrix> HardMatrices(int64_t rows, int64_t cols);

oracle::Matrix Widen(const FloatMatrix& matrix);
oracle::Matrix OracleNewtonSchulz(const FloatMatrix& matrix,
                                  const NewtonSchulzOptions& options);

// The matrix alone, packed.
FloatMatrix Orthogonalized(const FloatMatrix& matrix,
                           const NewtonSchulzOptions& options, int num_threads);

// "gram f32 jordan5", for messages.
std::string Describe(const NewtonSchulzOptions& options);

// Standard and gram in f32, standard in bf16, with both coefficient sets.
std::vector<NewtonSchulzOptions> AllPaths();

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_KERNEL_MATRICES_H_
