// Reads the HDF5 files that tests compare with.
//
// What: whole datasets widened to double, which is exact for all that occurs
//   (f64, f32, integers of up to 32 bits, and bf16 or fp16 as uint16 patterns
//   whose attribute `dtype` says so), and scalar attributes.
// Ownership: a Hdf5File owns its handle; values are copies.
// Threads: one at a time (HDF5 is not built for threads).
// Failures: std::runtime_error that names file and object.

#ifndef MUONSTORE_TESTS_TESTUTIL_HDF5_FILE_H_
#define MUONSTORE_TESTS_TESTUTIL_HDF5_FILE_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "muonstore/dtype.h"

namespace muonstore::testutil {

struct Hdf5Tensor {
  DType dtype = DType::kF64;   // As stored.
  std::vector<int64_t> shape;  // Empty for a scalar.
  std::vector<double> values;  // Row-major.

  // Rounded to float: exact for every dtype but f64.
  std::vector<float> floats() const;
};

class Hdf5File {
 public:
  explicit Hdf5File(const std::filesystem::path& path);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  // Names of the members of a group ("/" is the root), sorted.
  std::vector<std::string> Members(const std::string& group) const;
  // The paths of all datasets, and of those below a group.
  const std::vector<std::string>& datasets() const { return datasets_; }
  std::vector<std::string> DatasetsUnder(const std::string& group) const;
  bool Has(const std::string& dataset) const;
  Hdf5Tensor Read(const std::string& name) const;

  // Attributes of a dataset or group ("/" is the file's root).
  std::optional<double> Number(const std::string& object,
                               const std::string& name) const;
  // All numbers of an attribute that must be there.
  std::vector<int64_t> Integers(const std::string& object,
                                const std::string& name) const;
  std::optional<std::string> Text(const std::string& object,
                                  const std::string& name) const;

 private:
  std::string What(const std::string& object) const;

  std::filesystem::path path_;
  int64_t file_ = -1;
  std::vector<std::string> datasets_;  // Sorted.
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_HDF5_FILE_H_
