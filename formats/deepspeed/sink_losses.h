// What of a source has no place in DeepSpeed's files, and what a user should
// know of what has.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_SINK_LOSSES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_SINK_LOSSES_H_

#include <string>
#include <vector>

#include "formats/deepspeed/target.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::deepspeed {

std::vector<SinkLoss> FindLosses(const Target& target);
std::vector<std::string> FindNotes(const Target& target);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_SINK_LOSSES_H_
