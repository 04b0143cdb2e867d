// Memory of Python objects.
//
// What: a WritableBuffer is the contiguous memory of an object that has the
//   buffer protocol: a NumPy array, a memoryview.
// Ownership: keeps the object's memory where it is while it lives.
// Threads: made and destroyed with the GIL; the memory may be used without.
// Failures: Python's BufferError.

#ifndef MUONSTORE_PYTHON_SRC_BUFFERS_H_
#define MUONSTORE_PYTHON_SRC_BUFFERS_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <span>

namespace muonstore::python {

class WritableBuffer {
 public:
  explicit WritableBuffer(const nanobind::object& object) {
    if (PyObject_GetBuffer(object.ptr(), &view_,
                           PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) != 0) {
      throw nanobind::python_error();
    }
  }
  ~WritableBuffer() { PyBuffer_Release(&view_); }
  WritableBuffer(const WritableBuffer&) = delete;
  WritableBuffer& operator=(const WritableBuffer&) = delete;

  std::span<std::byte> span() const {
    return {static_cast<std::byte*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_{};
};

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_BUFFERS_H_
