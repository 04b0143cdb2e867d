// What is told about unread rank files by their sizes.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_RANK_SIZES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_RANK_SIZES_H_

#include <vector>

#include "formats/deepspeed/parts.h"
#include "muonstore/error.h"

namespace muonstore::deepspeed {

// Files of ranks 1 and up that are too short: for any torch file, or, where the
// layout is known, for the masters and Adam moments of their elements. One that
// lost less than the rest of it is not noticed.
std::vector<Error> CheckSizes(const Parts& parts);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_RANK_SIZES_H_
