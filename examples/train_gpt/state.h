// The state store of a run: its parameters, where its state lies, its start.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_STATE_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_STATE_H_

#include <memory>
#include <vector>

#include "examples/train_gpt/flags.h"
#include "examples/train_gpt/gpt.h"
#include "muonstore/communicator.h"
#include "muonstore/store.h"

namespace train_gpt {

// Param groups of the store.
inline constexpr int32_t kMuonGroup = 0;
inline constexpr int32_t kAdamGroup = 1;

// Collective. Holds `weights` as masters and compute weights. Throws where the
// state does not fit what the flags allow, with what it would take.
std::unique_ptr<muonstore::StateStore> MakeStore(
    const Flags& flags, const std::vector<NamedTensor>& weights,
    const std::shared_ptr<muonstore::Communicator>& communicator);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_STATE_H_
