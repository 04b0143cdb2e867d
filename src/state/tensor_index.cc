#include "src/state/tensor_index.h"

namespace muonstore {

TensorIndex::TensorIndex(const Checkpoint& checkpoint)
    : checkpoint_(checkpoint) {
  const auto tensors = checkpoint.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    index_.emplace(tensors[i].key, i);
  }
}

std::optional<size_t> TensorIndex::Find(const TensorKey& key) const {
  const auto& aliases = checkpoint_.info().aliases;
  const auto alias = aliases.find(key.parameter);
  const auto it = index_.find(
      alias == aliases.end() ? key : TensorKey{alias->second, key.kind});
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

}  // namespace muonstore
