#include "formats/native/hdf5_handle.h"

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// libhdf5 may be built without locks of its own, and is one for the process.
std::mutex& LibraryMutex() {
  static std::mutex mutex;
  return mutex;
}

// The signature is HDF5's; the innermost entry of the stack comes first.
herr_t TakeFirst(unsigned /*n*/, const H5E_error2_t* entry, void* out) {
  auto& text = *static_cast<std::string*>(out);
  if (text.empty() && entry->desc != nullptr) {
    text = entry->desc;
  }
  return 0;
}

}  // namespace

Hdf5Scope::Hdf5Scope() : lock_(LibraryMutex()) {
  H5dont_atexit();
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLget_loading_state(&plugins_);
  H5PLset_loading_state(0);
}

Hdf5Scope::~Hdf5Scope() {
  H5PLset_loading_state(plugins_);
  H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_);
}

void ThrowHdf5(const char* action) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, TakeFirst, &reason);
  throw Error(ErrorCode::kInternal,
              StrCat("HDF5 cannot ", action, ": ", Printable(reason)));
}

}  // namespace muonstore::native
