// In which order the parameters of a checkpoint stand, and can stand.
//
// What: DeepSpeed sorts a Muon group by shape unless the model was built under
//   zero.Init, may deal parameters to ranks in turn (round robin), and keeps
//   every other group as it was given. This undoes the dealing and tells which
//   of the orders a file has.
// Ownership: plain values.
// Threads, failures: pure functions that do not fail.

#ifndef MUONSTORE_CONVERTERS_PARAMETER_ORDER_H_
#define MUONSTORE_CONVERTERS_PARAMETER_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "converters/stored_layout.h"
#include "muonstore/checkpoint.h"

namespace muonstore {

struct ParameterOrder {
  // As the rule starts from them: param group by param group, undealt;
  // parameters without elements last.
  std::vector<ParameterSpec> as_stored;
  // The same with the Muon groups in the module's order; nullopt where the
  // checkpoint does not tell that order or its groups contradict it.
  std::optional<std::vector<ParameterSpec>> by_module;
  // Of the Muon groups as stored.
  bool is_sorted = true;
  bool is_by_module = true;
  // The file deals parameters to ranks in turn.
  bool round_robin = false;
};

// `round_robin`: what the run's config says, where it is known.
ParameterOrder FindOrder(const Checkpoint& checkpoint,
                         const StoredLayout& layout,
                         std::optional<bool> round_robin);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_PARAMETER_ORDER_H_
