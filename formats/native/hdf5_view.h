// `checkpoint.h5`: the logical tensors, for everybody else's tools.
//
// What: a virtual dataset a tensor at /state/<kind>/<encoded name>, with the
//   logical shape, stitched from the rank files' segments. Where a rank file is
//   missing every bit is one: NaN in floats, -1 in signed integers; never
//   zeros.
#ifndef MUONSTORE_FORMATS_NATIVE_HDF5_VIEW_H_
#define MUONSTORE_FORMATS_NATIVE_HDF5_VIEW_H_

#include <cstdint>
#include <string>

#include "formats/native/hdf5_image.h"
#include "formats/native/layout.h"
#include "formats/native/manifest.h"

namespace muonstore::native {

// Why there can be no view: more than `max_mappings` of them, a shape or a name
// beyond HDF5's limits; empty: there can.
std::string WhyNoView(const Manifest& manifest, const Layout& layout,
                      int64_t max_mappings);

// The whole file.
Hdf5Image MakeView(const Manifest& manifest, const Layout& layout);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HDF5_VIEW_H_
