// The checks of verify.h that compare values, tensor by tensor.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_VERIFY_VALUES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_VERIFY_VALUES_H_

#include <vector>

#include "formats/deepspeed/checkpoint.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// Every element of every tensor lies in exactly one fragment, inside of its
// segment. Lost elements are not repeated here.
void CheckCoverageOfAll(const DeepSpeedCheckpoint& checkpoint,
                        std::vector<Finding>& findings);

// Momentum in the whole-matrix form lies on several ranks: all copies against
// the one that the logical state takes, each element from its owner. A fault;
// a warning for DeepSpeed before 0.19.6, where the copies differ by a bug.
void CompareReplicas(const DeepSpeedCheckpoint& checkpoint,
                     std::vector<Finding>& findings);

// The module's own weights against round(master), bit for bit.
void CompareWeights(const DeepSpeedCheckpoint& checkpoint,
                    std::vector<Finding>& findings);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_VERIFY_VALUES_H_
