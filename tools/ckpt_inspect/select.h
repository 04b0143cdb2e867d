// Which tensors a command is about.
//
// Failures: Error(kInvalidArgument) where nothing matches, with the kinds or
//   the nearest names that the checkpoint has.

#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_SELECT_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_SELECT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"

namespace muonstore::tools {

struct Selection {
  std::string param;  // GLOB; empty: any.
  std::string state;  // Kind or alias; empty: any.

  bool empty() const { return param.empty() && state.empty(); }
};

// Indices into checkpoint.tensors(), ascending. A tied name selects the kept
// parameter.
std::vector<size_t> SelectTensors(const Checkpoint& checkpoint,
                                  const Selection& selection);

// The one tensor of that name and kind, or the only one that a GLOB matches.
size_t SelectTensor(const Checkpoint& checkpoint, const Selection& selection);

// The same for a pair of checkpoints: whether a tensor of either is selected.
// Throws where nothing of both is.
class PairSelector {
 public:
  PairSelector(const Checkpoint& a, const Checkpoint& b,
               const Selection& selection);
  bool operator()(const CheckpointTensor& tensor) const;

 private:
  Selection selection_;
  std::vector<std::string> kept_names_;  // Of tied names that match.
};

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_SELECT_H_
