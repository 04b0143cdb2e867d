// Writes a tensor, or some of its rows, as a .npy file.
//
// What: NumPy's format 1.0, C order, little-endian, data at a multiple of 64
//   bytes. Types that NumPy has are written as they are; bf16, f8 and complex
//   half become the next wider NumPy type, which is exact.
// Memory: blocks of 4 MiB, whatever the tensor's size.
// Ownership: nothing is kept.
// Threads: one call, one thread.
// Failures: the file is written under a temporary name beside the target,
//   synced and renamed: after an error the target is as it was and the
//   temporary file is gone. Error(kUnsupported) for f4 pairs.

#ifndef MUONSTORE_SRC_INSPECT_NPY_H_
#define MUONSTORE_SRC_INSPECT_NPY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"
#include "src/inspect/parallel.h"

namespace muonstore {

// Magic, version, length and dictionary, padded. `descr` is NumPy's type
// string ("<f4").
std::string NpyHeader(const std::string& descr, std::span<const int64_t> shape);

// Half-open range of the first dimension.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};

struct NpyRequest {
  std::string path;   // Replaced.
  size_t tensor = 0;  // Index into checkpoint.tensors().
  RowRange rows;      // Within its num_rows(); {0, 1} for a scalar.
  ProgressCallback progress = {};
};

// What was written.
struct NpyResult {
  std::string descr;
  bool widened = false;  // The file's type is wider than the stored one.
  uint64_t size_bytes = 0;
};

NpyResult WriteNpy(std::shared_ptr<FileSystem> fs, const Checkpoint& checkpoint,
                   const NpyRequest& request);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_INSPECT_NPY_H_
