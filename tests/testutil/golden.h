// Golden values: what the optimizer held when a fixture was saved.
//
// What: a golden file is HDF5 with one dataset a tensor, named
//   <kind>/<parameter> with DeepSpeed's kind names ("fp32", "momentum_buffer",
//   "exp_avg", "exp_avg_sq", "step"). Values are float32 (16-bit state is
//   widened, which is exact) in row-major order; steps are float64 scalars.
//   The values were gathered from the live optimizer, not from the files.
// Ownership: plain values.
// Threads: one at a time (HDF5 is not built for threads).
// Failures: std::runtime_error that names file and dataset.

#ifndef MUONSTORE_TESTS_TESTUTIL_GOLDEN_H_
#define MUONSTORE_TESTS_TESTUTIL_GOLDEN_H_

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/testutil/fixtures.h"

namespace muonstore::testutil {

// Exactly one of `floats` and `doubles` is filled, by the dataset's type.
struct GoldenTensor {
  std::vector<int64_t> shape;   // Empty for a scalar.
  std::vector<float> floats;    // Row-major.
  std::vector<double> doubles;  // Row-major.
};

using Golden = std::map<std::string, GoldenTensor>;

// Every dataset of the file.
Golden ReadGolden(const std::filesystem::path& path);

// The values that the optimizer held at this tag, under <kind>/<parameter>. A
// case that was saved twice keeps the later ones under final_<kind> in its
// file; they are returned under <kind>.
Golden ReadGolden(const DeepSpeedTag& tag);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_GOLDEN_H_
