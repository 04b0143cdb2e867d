// Strided views as tensors, tensors as chunks and spans.
#include <array>
#include <string>

#include "muonstore/error.h"
#include "muonstore/torch.h"
#include "src/base/str.h"
#include "src/tensor/training_dtype.h"
#include "src/torch/blob.h"

namespace muonstore {
namespace {

void RequireDense(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the tensor is undefined; a parameter without a gradient "
                "takes AccumulateZero");
  }
  if (!tensor.device().is_cpu() || tensor.layout() != at::kStrided ||
      tensor.is_conj() || tensor.is_neg()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the tensor is not dense memory of the host: pass .cpu()",
                {.found = tensor.toString()});
  }
  if (!tensor.is_contiguous()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the tensor's elements are not in row-major order: pass "
                ".contiguous()",
                {.found = StrCat("strides ", ShapeOf(tensor).ToString())});
  }
}

}  // namespace

at::Tensor AsTensor(const StridedView<const std::byte>& view,
                    const std::shared_ptr<const void>& owner) {
  if (view.block_rows == view.rows || view.rows == 0) {
    const std::array sizes = {view.batch, view.rows, view.cols};
    const std::array strides = {view.batch_stride, view.row_stride, int64_t{1}};
    return Blob(view.data, view.dtype, sizes, strides, owner);
  }
  const std::array sizes = {view.batch, view.rows / view.block_rows,
                            view.block_rows, view.cols};
  const std::array strides = {view.batch_stride, view.block_stride,
                              view.row_stride, int64_t{1}};
  return Blob(view.data, view.dtype, sizes, strides, owner);
}

at::Tensor AsTensor(const StridedView<std::byte>& view,
                    const std::shared_ptr<const void>& owner) {
  return AsTensor(
      StridedView<const std::byte>{view.data, view.dtype, view.batch, view.rows,
                                   view.cols, view.batch_stride,
                                   view.row_stride, view.block_rows,
                                   view.block_stride},
      owner);
}

GradientChunk ChunkOf(const at::Tensor& gradient) {
  RequireDense(gradient);
  GradientChunk chunk;
  chunk.dtype = DTypeOf(gradient.scalar_type());
  RequireTrainingDType(chunk.dtype, ErrorCode::kUnsupported,
                       "gradients have another dtype than this");
  chunk.data = {static_cast<const std::byte*>(gradient.const_data_ptr()),
                gradient.nbytes()};
  chunk.parameter_shape = ShapeOf(gradient);
  return chunk;
}

std::span<const float> FloatsOf(const at::Tensor& tensor) {
  RequireDense(tensor);
  if (tensor.scalar_type() != at::ScalarType::Float) {
    throw Error(ErrorCode::kUnsupported, "the tensor is not f32",
                {.found = tensor.toString()});
  }
  return {tensor.const_data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace muonstore
