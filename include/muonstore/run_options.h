// The options of a training run, as far as a checkpoint tells them.
//
// What: turns the param groups of a checkpoint, and the DeepSpeed config that
//   it may carry, into the options of an executor that goes on as the run did.
//   What the checkpoint does not say keeps its default and is named.
// Ownership, threads: plain values; a pure function of the checkpoint.
// Failures: Error(kUnsupported) for a setting that an executor does not have
//   (amsgrad, maximize, no bias correction), Error(kDataLoss) for a value of a
//   wrong type.

#ifndef MUONSTORE_RUN_OPTIONS_H_
#define MUONSTORE_RUN_OPTIONS_H_

#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/executor.h"

namespace muonstore {

struct RunOptions {
  // `groups` has one entry a param group of the checkpoint, in its order;
  // SpecsOf (load.h) numbers parameters in the same way.
  ExecutorOptions executor;
  // What kept its default: "group 0: momentum", "gradient_clipping".
  std::vector<std::string> missing;
  // Where our arithmetic is chosen to be another than the run's.
  std::vector<std::string> notes;
};

RunOptions RunOptionsOf(const Checkpoint& checkpoint);

}  // namespace muonstore

#endif  // MUONSTORE_RUN_OPTIONS_H_
