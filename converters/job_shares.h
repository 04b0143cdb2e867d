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

JobShares DivideMemory(const ConvertOptions& options, size_t num_files);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_JOB_SHARES_H_
