// Reads datasets and numeric attributes of HDF5 files by name, for oracles.
//
// Ownership: the reader owns the open file; results are values.
// Threads: one at a time (HDF5 is not built for threads).
// Failures: std::runtime_error that names file and object.

#ifndef MUONSTORE_TESTS_TESTUTIL_HDF5_READER_H_
#define MUONSTORE_TESTS_TESTUTIL_HDF5_READER_H_

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace muonstore::testutil {

class Hdf5Reader {
 public:
  explicit Hdf5Reader(std::filesystem::path path);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  // Names of the members of a group ("/" is the root), in alphabetical order.
  std::vector<std::string> Members(const std::string& group) const;
  bool Has(const std::string& name) const;
  std::vector<int64_t> Shape(const std::string& dataset) const;
  // All elements, row-major, converted to double.
  std::vector<double> Values(const std::string& dataset) const;
  // The first number of an attribute of a group or dataset.
  std::optional<double> Attribute(const std::string& object,
                                  const std::string& name) const;
  // All numbers of an attribute that must be there.
  std::vector<int64_t> Integers(const std::string& object,
                                const std::string& attribute) const;

 private:
  std::string Place(const std::string& name) const;

  std::filesystem::path path_;
  int64_t file_ = -1;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_HDF5_READER_H_
