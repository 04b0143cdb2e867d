// A virtual file driver of libhdf5 that keeps a file's metadata in memory.
#ifndef MUONSTORE_FORMATS_NATIVE_HDF5_DRIVER_H_
#define MUONSTORE_FORMATS_NATIVE_HDF5_DRIVER_H_

#include "formats/native/hdf5_handle.h"
#include "formats/native/hdf5_image.h"

namespace muonstore::native {

// A new HDF5 file whose bytes go to `image`, which must outlive it. Raw data is
// placed where Hdf5Image::PlaceNextRaw says, metadata behind the payload. The
// image is complete after Close().
class ImageFile {
 public:
  explicit ImageFile(Hdf5Image& image);

  const Handle& handle() const { return file_; }
  void Close() { file_.Close("finish a file"); }

 private:
  // Declared first, so that it goes last: closing a file, libhdf5 looks at the
  // driver after it has let go of it.
  Handle driver_;
  Handle file_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HDF5_DRIVER_H_
