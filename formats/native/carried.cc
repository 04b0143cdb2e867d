#include "formats/native/carried.h"

#include <optional>

#include "formats/native/carried_keys.h"
#include "formats/torchfile/torch_file.h"

namespace muonstore::native {

torchfile::CarriedRank NativeCarriedState::rank(int32_t rank) const {
  const auto file =
      torchfile::TorchFile::Open(fs_, paths_[static_cast<size_t>(rank)]);
  const auto tree = [&](std::string_view key) {
    std::optional<torchfile::TreeRef> ref;
    const torchfile::Value value = file->RequireDict().Get(key);
    if (!value.is_none()) {
      ref = torchfile::TreeRef{.file = file, .node = value.id()};
    }
    return ref;
  };
  return {.model_states = tree(kModelStates),
          .optim_states = tree(kOptimStates)};
}

}  // namespace muonstore::native
