// HDF5 types, datasets and attributes for what a checkpoint holds.
#ifndef MUONSTORE_FORMATS_NATIVE_HDF5_TYPES_H_
#define MUONSTORE_FORMATS_NATIVE_HDF5_TYPES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/native/hdf5_handle.h"
#include "muonstore/dtype.h"

namespace muonstore::native {

// Real numbers are HDF5 floats and integers of their layout, bf16 and f16
// included; bool is h5py's enumeration; complex numbers are compounds of r and
// i. f8 and f4, which HDF5 1.10 cannot express, are plain bytes.
Handle Hdf5Type(DType dtype);

// Properties of a new dataset with what all of ours have in common.
Handle DatasetProperties();
// The group of that name in `parent`, made where it is absent. Without times:
// the same checkpoint gives the same bytes.
Handle GroupIn(const Handle& parent, const std::string& name);
// Names of links are UTF-8.
Handle LinkProperties();

void WriteAttribute(hid_t object, const char* name, int64_t value);
// Any bytes: text, or a list of bytes called <name>_bytes.
void WriteAttribute(hid_t object, const char* name, std::string_view value);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HDF5_TYPES_H_
