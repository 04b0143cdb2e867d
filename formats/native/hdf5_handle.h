// The door to libhdf5: owners, checked calls, and a scope in which it is quiet.
//
// What: the only header beside hdf5_driver.cc that sees <hdf5.h>; included by
//   hdf5_*.cc alone.
// Ownership: a Handle closes its identifier.
// Threads: one Hdf5Scope at a time, by its lock.
// Failures: Error(kInternal) with libhdf5's own words: with all its I/O in
//   memory, a refusal is a bug or a lack of memory.
#ifndef MUONSTORE_FORMATS_NATIVE_HDF5_HANDLE_H_
#define MUONSTORE_FORMATS_NATIVE_HDF5_HANDLE_H_

#include <mutex>
#include <string>
#include <utility>

#include <hdf5.h>

namespace muonstore::native {

// Around every use of libhdf5: no printing of errors and no loading of
// plugins (what the process had set comes back), no handler at exit.
class Hdf5Scope {
 public:
  Hdf5Scope();
  ~Hdf5Scope();
  Hdf5Scope(const Hdf5Scope&) = delete;
  Hdf5Scope& operator=(const Hdf5Scope&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  H5E_auto2_t printer_ = nullptr;
  void* printer_data_ = nullptr;
  unsigned plugins_ = 0;
};

[[noreturn]] void ThrowHdf5(const char* action);

// A negative result is an error: "cannot <action>".
inline void Check(herr_t result, const char* action) {
  if (result < 0) {
    ThrowHdf5(action);
  }
}

class Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  Handle(hid_t id, Closer closer, const char* action)
      : id_(id), closer_(closer) {
    if (id_ < 0) {
      ThrowHdf5(action);
    }
  }
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)),
        closer_(other.closer_) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) {
      closer_(id_);
    }
  }

  hid_t get() const { return id_; }
  // Closes now, so that a failure shows.
  void Close(const char* action) {
    Check(closer_(std::exchange(id_, H5I_INVALID_HID)), action);
  }

 private:
  hid_t id_;
  Closer closer_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HDF5_HANDLE_H_
