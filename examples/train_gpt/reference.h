// Muon and AdamW on whole tensors, written from their formulas with LibTorch's
// tensor operations alone: what the store and its executor are compared with.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_REFERENCE_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_REFERENCE_H_

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "examples/train_gpt/flags.h"
#include "examples/train_gpt/gpt.h"

namespace train_gpt {

class Reference {
 public:
  // `num_heads` is for QkvLayout::kHeads.
  Reference(const OptimizerFlags& flags, int64_t num_heads,
            std::vector<NamedTensor> masters);

  // One step by f32 gradients, one a parameter. Returns their global norm
  // before clipping.
  double Step(const std::vector<at::Tensor>& gradients);

  const std::vector<NamedTensor>& masters() const { return masters_; }

 private:
  // Muon uses the first as its momentum.
  struct State {
    at::Tensor first;
    at::Tensor second;
  };

  void MuonStep(const NamedTensor& master, State& state,
                const at::Tensor& gradient) const;
  void AdamStep(const NamedTensor& master, State& state,
                const at::Tensor& gradient) const;
  int64_t RowsOfMatrix(const NamedTensor& master) const;

  OptimizerFlags flags_;
  int64_t num_heads_;
  std::vector<NamedTensor> masters_;
  std::vector<State> states_;
  int64_t num_steps_ = 0;
};

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_REFERENCE_H_
