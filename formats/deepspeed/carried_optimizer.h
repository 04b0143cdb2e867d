// The parts of a source's optim_states that a target takes over, wherever the
// source's stage keeps them.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_CARRIED_OPTIMIZER_H_
#define MUONSTORE_FORMATS_DEEPSPEED_CARRIED_OPTIMIZER_H_

#include <cstddef>
#include <optional>
#include <string_view>

#include "formats/torchfile/value.h"

namespace muonstore::deepspeed {

// Cursors into the carried file; nullopt where it has no such thing.
class CarriedOptimizer {
 public:
  explicit CarriedOptimizer(std::optional<torchfile::Value> root);

  // An entry of optimizer_state_dict: "loss_scaler", "clip_grad", ...
  std::optional<torchfile::Value> Find(std::string_view key) const;
  // A dict of hyper-parameters.
  std::optional<torchfile::Value> ParamGroup(size_t group) const;
  // The state dict of the first flat group of a param group that has one.
  std::optional<torchfile::Value> StateOfGroup(size_t group) const;

 private:
  std::optional<torchfile::Value> optimizer_;
  std::optional<torchfile::Value> groups_;
  std::optional<torchfile::Value> states_;   // Dict by flat group.
  std::optional<torchfile::Value> elastic_;  // List by flat group.
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_CARRIED_OPTIMIZER_H_
