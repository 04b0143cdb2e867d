// Reads a range of a strided view from a file, in bounded memory.
//
// What: the range is cut into at most 2 * rank + 1 boxes of the index space;
//   each box is read in the order of the storage, not of the view: runs that
//   are contiguous on both sides go straight to `out`, the rest through a
//   window. So a transposed view of any size costs one pass over its storage.
// Ownership: borrows everything. Threads: one thread a call.
// Failures: those of the file.

#ifndef MUONSTORE_FORMATS_TORCHFILE_STRIDED_READ_H_
#define MUONSTORE_FORMATS_TORCHFILE_STRIDED_READ_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/torchfile/value_tree.h"
#include "muonstore/file_system.h"

namespace muonstore::torchfile {

// A rectangular piece of the index space. All counts in elements.
struct ViewBox {
  struct Axis {
    int64_t size = 0;
    int64_t storage_stride = 0;
    int64_t out_stride = 0;
  };
  int64_t storage_offset = 0;  // Of the first element, in the storage.
  int64_t out_offset = 0;      // Of the first element, in the range.
  std::vector<Axis> axes;      // Storage strides descending; no size is 1.
};

// The boxes that cover elements [first, first + count) of the view in row-major
// order, each exactly once.
std::vector<ViewBox> CutIntoBoxes(const TensorInfo& tensor, int64_t first,
                                  int64_t count);

// Fills `out` with the elements from `first_element` on, as they are stored.
// `offset_bytes`: where the storage's data begins in the file. The caller has
// checked the range and the view.
void ReadStrided(RandomAccessFile& file, uint64_t offset_bytes,
                 const TensorInfo& tensor, int64_t first_element,
                 std::span<std::byte> out);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_STRIDED_READ_H_
