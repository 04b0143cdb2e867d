#include "examples/train_gpt/gradients.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

namespace train_gpt {

at::Tensor Flatten(const Gpt::Gradients& gradients) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : gradients.tensors) {
    flat.push_back(tensor.flatten());
  }
  return at::cat(flat);
}

at::Tensor MeanOf(const std::vector<at::Tensor>& pieces) {
  at::Tensor sum = at::zeros_like(pieces.front(), at::kDouble);
  for (const at::Tensor& piece : pieces) sum.add_(piece);
  return sum.div_(static_cast<double>(pieces.size())).to(at::kFloat);
}

std::vector<at::Tensor> Unflatten(const at::Tensor& flat,
                                  const std::vector<NamedTensor>& parameters) {
  std::vector<at::Tensor> views;
  int64_t offset = 0;
  for (const NamedTensor& parameter : parameters) {
    const int64_t numel = parameter.tensor.numel();
    views.push_back(
        flat.narrow(0, offset, numel).view(parameter.tensor.sizes()));
    offset += numel;
  }
  return views;
}

}  // namespace train_gpt
