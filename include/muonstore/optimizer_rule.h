// Which parameters Muon updates.
//
// What: DeepSpeed's rule, by name and logical shape: matrices, but for
//   embeddings and heads. What a run does otherwise is named parameter by
//   parameter, in the specs.
// Threads, failures: a pure function that does not fail.

#ifndef MUONSTORE_OPTIMIZER_RULE_H_
#define MUONSTORE_OPTIMIZER_RULE_H_

#include <string_view>

#include "muonstore/parameter.h"
#include "muonstore/shape.h"

namespace muonstore {

// kMuon for two dimensions or more, unless the name holds "embed" or "lm_head"
// in any case; else kAdam. Source: deepspeed/__init__.py, set_optimizer_flags.
Optimizer DeepSpeedOptimizer(std::string_view name, const Shape& shape);

}  // namespace muonstore

#endif  // MUONSTORE_OPTIMIZER_RULE_H_
