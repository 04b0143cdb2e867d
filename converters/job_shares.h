// How a conversion's threads share its memory.
//
// Threads: a pure function.
// Failures: Error(kInvalidArgument) for too little memory.

#ifndef MUONSTORE_CONVERTERS_JOB_SHARES_H_
#define MUONSTORE_CONVERTERS_JOB_SHARES_H_

#include <cstddef>
#include <cstdint>

#include "muonstore/checkpoint_sink.h"
#include "muonstore/convert.h"

namespace muonstore {

// How many threads, how large a block each may use, and its file.
struct JobShares {
  int32_t jobs = 1;
  size_t block_bytes = 0;
  SinkFileResources file;
};

// At least one, and as many of `jobs` as the memory has room for.
int32_t JobsWithin(uint64_t memory_limit_bytes, int32_t jobs);

JobShares DivideMemory(const ConvertOptions& options, size_t num_files);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_JOB_SHARES_H_
