// Newton-Schulz iteration in double, as its definition has it.
#ifndef MUONSTORE_TESTS_ORACLE_NEWTON_SCHULZ_H_
#define MUONSTORE_TESTS_ORACLE_NEWTON_SCHULZ_H_

#include <array>
#include <cstddef>
#include <vector>

namespace muonstore::oracle {

struct Iteration {
  std::vector<std::array<double, 3>> steps;  // a, b, c.
  double norm_factor = 1;
  double eps = 1e-7;  // Added to the norm.
};

Iteration Jordan5();
Iteration PolarExpress5();

// X of a row-major matrix; a zero matrix stays zero also where eps is 0.
std::vector<double> Orthogonalize(const std::vector<double>& values,
                                  size_t rows, size_t cols,
                                  const Iteration& iteration);

}  // namespace muonstore::oracle

#endif  // MUONSTORE_TESTS_ORACLE_NEWTON_SCHULZ_H_
