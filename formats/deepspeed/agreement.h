// Do the files of all ranks belong to one save of one run?
//
// Rank files carry no common identity, so files of different saves or runs are
// told apart by what must be equal on every rank, and by what each file says of
// its own place.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_AGREEMENT_H_
#define MUONSTORE_FORMATS_DEEPSPEED_AGREEMENT_H_

#include <vector>

#include "muonstore/error.h"

namespace muonstore::deepspeed {

struct Parts;

// Rank counts, versions, writers, steps, hyper-parameters, loss scale, and the
// rank that each file was written as.
std::vector<Error> CheckAgreement(const Parts& parts);

// group_paddings and alignment paddings against the layout.
std::vector<Error> CheckPaddings(const Parts& parts);

// param_slice_mappings against the layout. Not with round_robin_gradients:
// there DeepSpeed writes wrong mappings.
std::vector<Error> CheckSliceClaims(const Parts& parts);

void AppendErrors(std::vector<Error> from, std::vector<Error>& to);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_AGREEMENT_H_
