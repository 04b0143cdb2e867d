// One gradient from those of the pieces of a batch.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_GRADIENTS_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "examples/train_gpt/gpt.h"

namespace train_gpt {

// All gradients one behind the other: 1-D, in their dtype.
at::Tensor Flatten(const Gpt::Gradients& gradients);

// The f32 mean of flat gradients of equally large pieces, summed in double in
// the order given: the same bits wherever and whenever it is computed.
at::Tensor MeanOf(const std::vector<at::Tensor>& pieces);

// Views into a flat gradient, with the parameters' shapes.
std::vector<at::Tensor> Unflatten(const at::Tensor& flat,
                                  const std::vector<NamedTensor>& parameters);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_GRADIENTS_H_
