// What a checkpoint holds beside its logical tensors, as values.
//
// What: client state, schedulers, random states, loss scalers, configs: values
//   that no format models and that a writer emits again. They are trees of
//   torch files; logical tensors in them are replaced by None, so that a tree
//   is small and tells where each tensor was.
// Ownership: a TreeRef keeps its file alive; payloads stay on disk.
// Threads: as TorchFile; `rank` may be called by many threads.
// Failures: Error of the file that is read.

#ifndef MUONSTORE_FORMATS_TORCHFILE_CARRIED_STATE_H_
#define MUONSTORE_FORMATS_TORCHFILE_CARRIED_STATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "formats/torchfile/torch_file.h"
#include "formats/torchfile/value.h"

namespace muonstore::torchfile {

// A value of a torch file.
struct TreeRef {
  std::shared_ptr<const TorchFile> file;
  NodeId node = kNoNode;
  // True for a node that stands for a logical tensor of the checkpoint: a
  // writer puts None, or its own tensor, in its place. Empty: none does.
  std::function<bool(NodeId)> is_state = {};

  Value value() const { return Value(file->tree(), node); }
};

// Of one rank of the run that saved the checkpoint. The structure of both is
// that of DeepSpeed's files.
struct CarriedRank {
  std::optional<TreeRef> model_states;
  std::optional<TreeRef> optim_states;
};

class CarriedState {
 public:
  virtual ~CarriedState() = default;
  CarriedState() = default;
  CarriedState(const CarriedState&) = delete;
  CarriedState& operator=(const CarriedState&) = delete;

  virtual int32_t num_ranks() const = 0;
  // Parsed on demand and not kept: with many ranks each is a file of its own.
  virtual CarriedRank rank(int32_t rank) const = 0;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_CARRIED_STATE_H_
