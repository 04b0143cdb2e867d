// The mean of a tensor over ranks, the same bits on each.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_RANKS_MEAN_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_RANKS_MEAN_H_

#include <ATen/core/Tensor.h>

#include "muonstore/communicator.h"

namespace train_gpt {

// Collective: every rank gets every piece and sums in the order of ranks (see
// MeanOf), so that the result does not depend on who was first. `piece` is
// contiguous and alike on all ranks.
at::Tensor MeanOverRanks(muonstore::Communicator& communicator,
                         const at::Tensor& piece);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_RANKS_MEAN_H_
