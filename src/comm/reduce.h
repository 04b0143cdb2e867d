// The arithmetic of AllReduce.
#ifndef MUONSTORE_SRC_COMM_REDUCE_H_
#define MUONSTORE_SRC_COMM_REDUCE_H_

#include <cstdint>
#include <span>

#include "muonstore/communicator.h"

namespace muonstore::comm {

// into[i] = into[i] op from[i]; sums wrap around.
void Reduce(ReduceOp op, std::span<const int64_t> from,
            std::span<int64_t> into);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_REDUCE_H_
