// The same training in one process, on whole tensors, without the store.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_BASELINE_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_BASELINE_H_

#include "examples/train_gpt/flags.h"

namespace train_gpt {

void RunBaseline(const Flags& flags);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_BASELINE_H_
