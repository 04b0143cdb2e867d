#include "examples/train_gpt/ranks_mean.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ops/empty_like.h>

#include "examples/train_gpt/gradients.h"

namespace train_gpt {

at::Tensor MeanOverRanks(muonstore::Communicator& communicator,
                         const at::Tensor& piece) {
  muonstore::ExchangePlan plan;
  std::vector<at::Tensor> pieces;
  for (int32_t peer = 0; peer < communicator.size(); ++peer) {
    if (peer == communicator.rank()) {
      pieces.push_back(piece);
      continue;
    }
    at::Tensor& received = pieces.emplace_back(at::empty_like(piece));
    plan.sends.push_back(
        {peer,
         {static_cast<const std::byte*>(piece.const_data_ptr()),
          piece.nbytes()}});
    plan.receives.push_back(
        {peer,
         {static_cast<std::byte*>(received.mutable_data_ptr()),
          received.nbytes()}});
  }
  communicator.Exchange(plan)->Wait();
  return MeanOf(pieces);
}

}  // namespace train_gpt
