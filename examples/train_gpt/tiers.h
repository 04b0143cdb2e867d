// Where a run's optimizer state lies: memory, or a disk for what does not fit.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_TIERS_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_TIERS_H_

#include <span>
#include <string>

#include "examples/train_gpt/flags.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"
#include "muonstore/store_options.h"

namespace train_gpt {

// The same on every rank. With a memory budget, state kinds go to NVMe one
// after the other until what is left fits on each rank; throws
// std::runtime_error where even then it does not.
muonstore::TierPolicy ChooseTiers(
    const TierFlags& flags, std::span<const muonstore::ParameterSpec> specs,
    const muonstore::Partitioning& cut);

// "state of rank 0: memory 1.2 MiB, nvme 3.4 MiB (master, momentum)".
std::string DescribeTiers(const muonstore::TierPolicy& tiers,
                          std::span<const muonstore::ParameterSpec> specs,
                          const muonstore::Partitioning& cut);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_TIERS_H_
