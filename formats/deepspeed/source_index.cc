#include "formats/deepspeed/source_index.h"

namespace muonstore::deepspeed {

SourceIndex::SourceIndex(const Checkpoint& source) : source_(source) {
  for (size_t i = 0; i < source.tensors().size(); ++i) {
    by_name_[source.tensors()[i].key.parameter].push_back(i);
  }
}

std::optional<size_t> SourceIndex::Find(const std::string& name,
                                        std::string_view kind) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    return std::nullopt;
  }
  for (const size_t index : found->second) {
    if (tensor(index).key.kind == kind) {
      return index;
    }
  }
  return std::nullopt;
}

std::vector<StateKind> SourceIndex::StateKindsOf(
    const std::string& name) const {
  std::vector<StateKind> kinds;
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    return kinds;
  }
  for (const size_t index : found->second) {
    const StateKind& kind = tensor(index).key.kind;
    if (kind != kWeight && kind != kBuffer) {
      kinds.push_back(kind);
    }
  }
  return kinds;
}

}  // namespace muonstore::deepspeed
