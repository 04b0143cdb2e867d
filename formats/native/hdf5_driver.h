// A virtual file driver of libhdf5 that keeps a file's metadata in memory.
#ifndef MUONSTORE_FORMATS_NATIVE_HDF5_DRIVER_H_
#define MUONSTORE_FORMATS_NATIVE_HDF5_DRIVER_H_

#include "formats/native/hdf5_handle.h"
#include "formats/native/hdf5_image.h"

namespace muonstore::native {

// A new HDF5 file whose bytes go to `image`, which must outlive it. Raw data is
// placed where Hdf5Image::PlaceNextRaw says, metadata behind the payload. The
// image is complete when the handle is closed.
Handle CreateFileInImage(Hdf5Image& image);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HDF5_DRIVER_H_
