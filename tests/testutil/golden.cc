#include "tests/testutil/golden.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <hdf5.h>

namespace muonstore::testutil {
namespace {

// Owns one HDF5 identifier.
class Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Handle(hid_t id, Closer closer, const std::string& what)
      : id_(id), closer_(closer) {
    if (id_ < 0) throw std::runtime_error("HDF5 cannot open " + what);
  }
  ~Handle() { closer_(id_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  hid_t get() const { return id_; }

 private:
  hid_t id_;
  Closer closer_;
};

// The signature is HDF5's; nothing may be thrown through it.
herr_t CollectDataset(hid_t /*file*/, const char* name, const H5O_info_t* info,
                      void* names) {
  if (info->type == H5O_TYPE_DATASET) {
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  }
  return 0;
}

std::vector<int64_t> ReadShape(hid_t dataset, const std::string& what) {
  const Handle space(H5Dget_space(dataset), H5Sclose, what);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  if (rank < 0) throw std::runtime_error("no simple extent: " + what);
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

void ReadAll(hid_t dataset, hid_t type, void* out, const std::string& what) {
  if (H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) < 0) {
    throw std::runtime_error("HDF5 cannot read " + what);
  }
}

GoldenTensor ReadDataset(hid_t file, const std::string& name,
                         const std::string& what) {
  const Handle dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose,
                       what);
  GoldenTensor tensor;
  tensor.shape = ReadShape(dataset.get(), what);
  size_t num_elements = 1;
  for (int64_t dim : tensor.shape) num_elements *= static_cast<size_t>(dim);

  const Handle type(H5Dget_type(dataset.get()), H5Tclose, what);
  if (H5Tequal(type.get(), H5T_IEEE_F32LE) > 0) {
    tensor.floats.resize(num_elements);
    ReadAll(dataset.get(), H5T_NATIVE_FLOAT, tensor.floats.data(), what);
  } else if (H5Tequal(type.get(), H5T_IEEE_F64LE) > 0) {
    tensor.doubles.resize(num_elements);
    ReadAll(dataset.get(), H5T_NATIVE_DOUBLE, tensor.doubles.data(), what);
  } else {
    throw std::runtime_error("neither float32 nor float64: " + what);
  }
  return tensor;
}

}  // namespace

Golden ReadGolden(const std::filesystem::path& path) {
  const Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT),
                    H5Fclose, path.string());
  std::vector<std::string> names;
  if (H5Ovisit2(file.get(), H5_INDEX_NAME, H5_ITER_NATIVE, CollectDataset,
                &names, H5O_INFO_BASIC) < 0) {
    throw std::runtime_error("HDF5 cannot list " + path.string());
  }
  Golden golden;
  for (const std::string& name : names) {
    golden.emplace(name, ReadDataset(file.get(), name,
                                     path.string() + ": dataset " + name));
  }
  return golden;
}

Golden ReadGolden(const DeepSpeedTag& tag) {
  constexpr std::string_view kLater = "final_";
  // Cases are saved at step 5; the only other tag is the end of the run.
  const bool later = tag.tag != "step5";
  Golden golden;
  for (auto& [name, tensor] : ReadGolden(tag.golden_path())) {
    const bool is_later = name.starts_with(kLater);
    if (is_later != later || name.starts_with("buffer_after8/")) continue;
    golden.emplace(later ? name.substr(kLater.size()) : name,
                   std::move(tensor));
  }
  if (golden.empty()) {
    throw std::runtime_error("no golden values for " + tag.ToString());
  }
  return golden;
}

}  // namespace muonstore::testutil
