// Matrices for tests, and singular values by another method than the library's.
#ifndef MUONSTORE_TESTS_INSPECT_MATRICES_H_
#define MUONSTORE_TESTS_INSPECT_MATRICES_H_

#include <cstdint>
#include <vector>

namespace muonstore::testutil {

// Row-major entries in [-0.5, 0.5), exact in float, from a hash of the index:
// NumPy can make the same ones.
std::vector<float> HashedMatrix(int64_t rows, int64_t cols);

// sum over r of sigmas[r] * u_r v_r^T with orthonormal u and v.
std::vector<float> MatrixWithSingularValues(int64_t rows, int64_t cols,
                                            const std::vector<double>& sigmas);

// All singular values, descending, by one-sided Jacobi rotations in double.
std::vector<double> JacobiSingularValues(const std::vector<float>& matrix,
                                         int64_t rows, int64_t cols);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_INSPECT_MATRICES_H_
