// Gathered tensors, whose memory LibTorch takes over.
#include <memory>
#include <utility>

#include "muonstore/torch.h"
#include "src/torch/blob.h"

namespace muonstore {

at::Tensor AsTensor(GatheredTensor gathered) {
  auto kept = std::make_shared<GatheredTensor>(std::move(gathered));
  const std::byte* data = kept->data.data();
  const Shape shape = kept->shape;
  const DType dtype = kept->dtype;
  return Blob(data, dtype, shape.dims(), shape.ContiguousStrides(), kept);
}

}  // namespace muonstore
