// State as at::Tensor without a copy, and tensors as gradients.
//
// What: views of what a lease gives: a parameter's matrices (the whole one, its
//   heads, its blocks of packed rows) or, where one rank holds all of it, the
//   tensor in its logical shape. In the other direction, a gradient or weight
//   that LibTorch made, as the executor and the store take it.
// Ownership: a tensor made from a lease shares it: the lease ends when the last
//   of its tensors and the caller's pointer are gone. The store must outlive
//   them. A chunk or span made from a tensor refers to the tensor's memory.
// Threads: as the lease's; LibTorch may drop a tensor on any thread.
// Failures: Error(kInvalidArgument) for a matrix or tensor that is not on this
//   rank as a whole, and for a tensor that is not dense memory of the host;
//   Error(kUnsupported) for a dtype that the other side does not have.
//
// A tensor over a ReadLease must not be written: LibTorch has no read-only
// tensors, and the memory may be protected. One over a WriteLease must not be
// used after Commit. Link muonstore::torch.

#ifndef MUONSTORE_TORCH_H_
#define MUONSTORE_TORCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <ATen/core/Tensor.h>

#include "muonstore/dtype.h"
#include "muonstore/executor.h"
#include "muonstore/lease.h"
#include "muonstore/shape.h"
#include "muonstore/store.h"

namespace muonstore {

at::ScalarType ScalarTypeOf(DType dtype);
DType DTypeOf(at::ScalarType type);
Shape ShapeOf(const at::Tensor& tensor);

// [batch, rows, cols], or [batch, rows / block_rows, block_rows, cols] where
// the rows of a matrix come in spaced blocks. Keeps `owner` while it lives.
at::Tensor AsTensor(const StridedView<std::byte>& view,
                    const std::shared_ptr<const void>& owner);
at::Tensor AsTensor(const StridedView<const std::byte>& view,
                    const std::shared_ptr<const void>& owner);

// Matrices [first, first + count) of batch `batch` of the parameter's layout,
// as Lease::Matrices has them.
at::Tensor MatrixTensor(const std::shared_ptr<const ReadLease>& lease,
                        int32_t batch, int64_t first, int64_t count);
at::Tensor MatrixTensor(const std::shared_ptr<const WriteLease>& lease,
                        int32_t batch, int64_t first, int64_t count);

// The tensor in its logical shape, of which this rank must hold every element
// in one piece; StateStore::Gather gathers one that is spread.
at::Tensor WholeTensor(const std::shared_ptr<const ReadLease>& lease);
at::Tensor WholeTensor(const std::shared_ptr<const WriteLease>& lease);

// Takes the gathered tensor's memory over.
at::Tensor AsTensor(GatheredTensor gathered);

// The whole gradient of a parameter, in the shape that `gradient` has. It is
// f32, bf16 or f16, contiguous, and must live until Accumulate has returned.
GradientChunk ChunkOf(const at::Tensor& gradient);

// The elements of a contiguous f32 tensor, for StateStore::Set.
std::span<const float> FloatsOf(const at::Tensor& tensor);

}  // namespace muonstore

#endif  // MUONSTORE_TORCH_H_
