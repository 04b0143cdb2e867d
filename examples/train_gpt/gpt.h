// A small GPT over bytes, from LibTorch's tensor operations.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_GPT_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_GPT_H_

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "examples/train_gpt/flags.h"

namespace train_gpt {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// The f32 weights that a run starts from, in module order.
std::vector<NamedTensor> InitialWeights(const ModelFlags& model, uint64_t seed);

// Muon takes the hidden matrices; embeddings, head and vectors go to Adam.
bool TakesMuon(const NamedTensor& parameter);

class Gpt {
 public:
  // `weights` as InitialWeights has them; rounded to the model's dtype.
  Gpt(const ModelFlags& model, const std::vector<NamedTensor>& weights);

  struct Gradients {
    double loss = 0;
    std::vector<at::Tensor> tensors;  // Of each parameter, in its dtype.
  };
  // Of the mean loss over `samples`: [count, context + 1].
  Gradients Backward(const at::Tensor& samples);

  // Compute weights, to be set before the next step.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }

 private:
  at::Tensor Loss(const at::Tensor& samples) const;
  at::Tensor Attention(const std::string& block, const at::Tensor& x) const;
  at::Tensor Mlp(const std::string& block, const at::Tensor& x) const;
  at::Tensor Linear(const std::string& layer, const at::Tensor& x) const;
  at::Tensor Norm(const std::string& layer, const at::Tensor& x) const;
  const at::Tensor& Parameter(const std::string& name) const;

  ModelFlags model_;
  std::vector<NamedTensor> parameters_;
};

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_GPT_H_
