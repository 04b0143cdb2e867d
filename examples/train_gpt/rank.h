// One rank of a training run whose optimizer state lives in muonstore.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_RANK_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_RANK_H_

#include "examples/train_gpt/flags.h"

namespace train_gpt {

// Collective over the processes that the launcher started.
void RunRank(const Flags& flags);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_RANK_H_
