#include "tests/testutil/hdf5_file.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>

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

herr_t CollectName(hid_t /*group*/, const char* name,
                   const H5L_info_t* /*info*/, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

void Require(bool good, const char* message, const std::string& what) {
  if (!good) throw std::runtime_error(std::string(message) + what);
}

std::vector<int64_t> ReadShape(hid_t dataset, const std::string& what) {
  const Handle space(H5Dget_space(dataset), H5Sclose, what);
  const int rank = H5Sget_simple_extent_ndims(space.get());
  Require(rank >= 0, "no simple extent: ", what);
  std::vector<hsize_t> dims(static_cast<size_t>(rank));
  H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

std::optional<DType> DTypeOf(hid_t type) {
  if (H5Tequal(type, H5T_IEEE_F32LE) > 0) return DType::kF32;
  if (H5Tequal(type, H5T_IEEE_F64LE) > 0) return DType::kF64;
  if (H5Tget_class(type) != H5T_INTEGER) return std::nullopt;
  switch (H5Tget_size(type)) {
    case 1:
      return DType::kU8;
    case 2:
      return DType::kU16;
    case 4:
      return DType::kI32;
    case 8:
      return DType::kI64;
    default:
      return std::nullopt;
  }
}

std::vector<double> Widen(DType dtype, const std::vector<double>& patterns) {
  std::vector<uint16_t> bits(patterns.size());
  std::transform(patterns.begin(), patterns.end(), bits.begin(),
                 [](double value) { return static_cast<uint16_t>(value); });
  std::vector<double> values(bits.size());
  ConvertToF64(dtype, std::as_bytes(std::span(bits)), values);
  return values;
}

}  // namespace

std::vector<float> Hdf5Tensor::floats() const {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(),
                 [](double value) { return static_cast<float>(value); });
  return result;
}

Hdf5File::Hdf5File(const std::filesystem::path& path)
    : path_(path), file_(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)) {
  Require(file_ >= 0, "HDF5 cannot open ", path.string());
  const herr_t listed = H5Ovisit2(file_, H5_INDEX_NAME, H5_ITER_NATIVE,
                                  CollectDataset, &datasets_, H5O_INFO_BASIC);
  if (listed < 0) H5Fclose(file_);
  Require(listed >= 0, "HDF5 cannot list ", path.string());
  std::sort(datasets_.begin(), datasets_.end());
}

Hdf5File::~Hdf5File() { H5Fclose(file_); }

std::string Hdf5File::What(const std::string& object) const {
  return path_.string() + ": " + object;
}

bool Hdf5File::Has(const std::string& dataset) const {
  return std::binary_search(datasets_.begin(), datasets_.end(), dataset);
}

std::vector<std::string> Hdf5File::DatasetsUnder(
    const std::string& group) const {
  std::vector<std::string> found;
  std::copy_if(datasets_.begin(), datasets_.end(), std::back_inserter(found),
               [prefix = group + "/"](const std::string& name) {
                 return name.starts_with(prefix);
               });
  return found;
}

Hdf5Tensor Hdf5File::Read(const std::string& name) const {
  const std::string what = What(name);
  const Handle dataset(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose,
                       what);
  const Handle type(H5Dget_type(dataset.get()), H5Tclose, what);
  const std::optional<DType> stored = DTypeOf(type.get());
  Require(stored.has_value(), "a type that tests do not read: ", what);
  Hdf5Tensor tensor{.dtype = *stored, .shape = ReadShape(dataset.get(), what)};
  size_t num_elements = 1;
  for (const int64_t dim : tensor.shape) {
    num_elements *= static_cast<size_t>(dim);
  }
  tensor.values.resize(num_elements);
  if (num_elements > 0) {
    Require(H5Dread(dataset.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL,
                    H5P_DEFAULT, tensor.values.data()) >= 0,
            "HDF5 cannot read ", what);
  }
  const std::string meaning = Text(name, "dtype").value_or("");
  if (meaning == "bf16" || meaning == "fp16") {
    tensor.dtype = meaning == "bf16" ? DType::kBF16 : DType::kF16;
    tensor.values = Widen(tensor.dtype, tensor.values);
  }
  return tensor;
}

std::optional<double> Hdf5File::Number(const std::string& object,
                                       const std::string& name) const {
  if (H5Aexists_by_name(file_, object.c_str(), name.c_str(), H5P_DEFAULT) <=
      0) {
    return std::nullopt;
  }
  const std::string what = What(object + " attribute " + name);
  const Handle attribute(H5Aopen_by_name(file_, object.c_str(), name.c_str(),
                                         H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, what);
  double value = 0;
  Require(H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, &value) >= 0,
          "HDF5 cannot read ", what);
  return value;
}

std::vector<int64_t> Hdf5File::Integers(const std::string& object,
                                        const std::string& name) const {
  const std::string what = What(object + " attribute " + name);
  const Handle attribute(H5Aopen_by_name(file_, object.c_str(), name.c_str(),
                                         H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, what);
  const Handle space(H5Aget_space(attribute.get()), H5Sclose, what);
  const hssize_t count = H5Sget_simple_extent_npoints(space.get());
  Require(count >= 0, "no simple extent: ", what);
  std::vector<int64_t> values(static_cast<size_t>(count));
  Require(H5Aread(attribute.get(), H5T_NATIVE_INT64, values.data()) >= 0,
          "HDF5 cannot read ", what);
  return values;
}

std::vector<std::string> Hdf5File::Members(const std::string& group) const {
  const Handle handle(H5Gopen2(file_, group.c_str(), H5P_DEFAULT), H5Gclose,
                      What(group));
  std::vector<std::string> names;
  Require(H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr,
                     CollectName, &names) >= 0,
          "HDF5 cannot list ", What(group));
  return names;
}

std::optional<std::string> Hdf5File::Text(const std::string& object,
                                          const std::string& name) const {
  if (H5Aexists_by_name(file_, object.c_str(), name.c_str(), H5P_DEFAULT) <=
      0) {
    return std::nullopt;
  }
  const std::string what = What(object + " attribute " + name);
  const Handle attribute(H5Aopen_by_name(file_, object.c_str(), name.c_str(),
                                         H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, what);
  const Handle type(H5Aget_type(attribute.get()), H5Tclose, what);
  Require(H5Tget_class(type.get()) == H5T_STRING &&
              H5Tis_variable_str(type.get()) == 0,
          "no string of fixed length: ", what);
  std::string text(H5Tget_size(type.get()), '\0');
  Require(H5Aread(attribute.get(), type.get(), text.data()) >= 0,
          "HDF5 cannot read ", what);
  return text.substr(0, text.find('\0'));
}

}  // namespace muonstore::testutil
