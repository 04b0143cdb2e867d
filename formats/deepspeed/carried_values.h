// What a model_states file holds beside what is interpreted: client state, the
// state of schedulers and samplers.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_CARRIED_VALUES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_CARRIED_VALUES_H_

#include <vector>

#include "formats/torchfile/value.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// `root`: the dict of the file.
std::vector<CarriedValue> CarriedValues(torchfile::Value root);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_CARRIED_VALUES_H_
