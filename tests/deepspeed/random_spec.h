// Random checkpoints of every form.
#ifndef MUONSTORE_TESTS_DEEPSPEED_RANDOM_SPEC_H_
#define MUONSTORE_TESTS_DEEPSPEED_RANDOM_SPEC_H_

#include <string>

#include "tests/deepspeed/checkpoint_spec.h"
#include "tests/partition/random_model.h"

namespace muonstore::deepspeed {

CheckpointSpec RandomSpec(Random& random, int stage);

// For messages.
std::string Describe(const CheckpointSpec& spec);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_TESTS_DEEPSPEED_RANDOM_SPEC_H_
