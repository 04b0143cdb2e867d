// A tensor over memory of ours.
//
// Ownership: the tensor keeps `owner` until its last view is gone.
// Threads: the owner is released on whichever thread drops that view.
// Failures: Error(kUnsupported) for a dtype that LibTorch lacks.

#ifndef MUONSTORE_SRC_TORCH_BLOB_H_
#define MUONSTORE_SRC_TORCH_BLOB_H_

#include <cstddef>
#include <memory>

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include "muonstore/dtype.h"
#include "muonstore/torch.h"

namespace muonstore {

// Sizes and strides count elements.
inline at::Tensor Blob(const std::byte* data, DType dtype,
                       at::IntArrayRef sizes, at::IntArrayRef strides,
                       const std::shared_ptr<const void>& owner) {
  // LibTorch has no read-only memory.
  void* memory = const_cast<std::byte*>(data);
  return at::from_blob(
      memory, sizes, strides, [kept = owner](void*) mutable { kept.reset(); },
      at::TensorOptions(ScalarTypeOf(dtype)));
}

}  // namespace muonstore

#endif  // MUONSTORE_SRC_TORCH_BLOB_H_
