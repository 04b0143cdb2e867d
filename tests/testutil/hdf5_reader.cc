#include "tests/testutil/hdf5_reader.h"

#include <stdexcept>
#include <utility>

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
herr_t CollectName(hid_t /*group*/, const char* name,
                   const H5L_info_t* /*info*/, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

std::vector<int64_t> Extent(hid_t space) {
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> dims(static_cast<size_t>(rank < 0 ? 0 : rank));
  H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

size_t Count(const std::vector<int64_t>& shape) {
  size_t count = 1;
  for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
  return count;
}

}  // namespace

Hdf5Reader::Hdf5Reader(std::filesystem::path path) : path_(std::move(path)) {
  file_ = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file_ < 0) throw std::runtime_error("HDF5 cannot open " + Place("/"));
}

Hdf5Reader::~Hdf5Reader() { H5Fclose(file_); }

std::string Hdf5Reader::Place(const std::string& name) const {
  return path_.string() + ": " + name;
}

std::vector<std::string> Hdf5Reader::Members(const std::string& group) const {
  const Handle handle(H5Gopen2(file_, group.c_str(), H5P_DEFAULT), H5Gclose,
                      Place(group));
  std::vector<std::string> names;
  if (H5Literate(handle.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, CollectName,
                 &names) < 0) {
    throw std::runtime_error("HDF5 cannot list " + Place(group));
  }
  return names;
}

bool Hdf5Reader::Has(const std::string& name) const {
  return H5Lexists(file_, name.c_str(), H5P_DEFAULT) > 0;
}

std::vector<int64_t> Hdf5Reader::Shape(const std::string& dataset) const {
  const Handle handle(H5Dopen2(file_, dataset.c_str(), H5P_DEFAULT), H5Dclose,
                      Place(dataset));
  const Handle space(H5Dget_space(handle.get()), H5Sclose, Place(dataset));
  return Extent(space.get());
}

std::vector<double> Hdf5Reader::Values(const std::string& dataset) const {
  const Handle handle(H5Dopen2(file_, dataset.c_str(), H5P_DEFAULT), H5Dclose,
                      Place(dataset));
  std::vector<double> values(Count(Shape(dataset)));
  if (H5Dread(handle.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
              values.data()) < 0) {
    throw std::runtime_error("HDF5 cannot read " + Place(dataset));
  }
  return values;
}

std::optional<double> Hdf5Reader::Attribute(const std::string& object,
                                            const std::string& name) const {
  if (H5Aexists_by_name(file_, object.c_str(), name.c_str(), H5P_DEFAULT) <=
      0) {
    return std::nullopt;
  }
  const std::string what = Place(object + "@" + name);
  const Handle attribute(H5Aopen_by_name(file_, object.c_str(), name.c_str(),
                                         H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, what);
  const Handle space(H5Aget_space(attribute.get()), H5Sclose, what);
  std::vector<double> values(Count(Extent(space.get())));
  if (values.empty() ||
      H5Aread(attribute.get(), H5T_NATIVE_DOUBLE, values.data()) < 0) {
    throw std::runtime_error("HDF5 cannot read " + what);
  }
  return values.front();
}

std::vector<int64_t> Hdf5Reader::Integers(const std::string& object,
                                          const std::string& name) const {
  const std::string what = Place(object + "@" + name);
  const Handle attribute(H5Aopen_by_name(file_, object.c_str(), name.c_str(),
                                         H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose, what);
  const Handle space(H5Aget_space(attribute.get()), H5Sclose, what);
  std::vector<int64_t> values(Count(Extent(space.get())));
  if (H5Aread(attribute.get(), H5T_NATIVE_INT64, values.data()) < 0) {
    throw std::runtime_error("HDF5 cannot read " + what);
  }
  return values;
}

}  // namespace muonstore::testutil
