#include "formats/deepspeed/file_draft.h"

#include <algorithm>

#include "formats/torchfile/globals_policy.h"

namespace muonstore::deepspeed {

using torchfile::NodeId;
using torchfile::Value;
using torchfile::ValueType;

FileDraft::FileDraft(const std::vector<KeyedSegment>& segments,
                     std::optional<torchfile::TreeRef> carried)
    : carried_(std::move(carried)) {
  for (const KeyedSegment& keyed : segments) {
    segments_.emplace(keyed.key, &keyed.segment);
  }
  if (carried_) {
    copier_.emplace(draft_, carried_->file,
                    [this](const Value& value) -> std::optional<NodeId> {
                      const bool is_state =
                          carried_->is_state && carried_->is_state(value.id());
                      return is_state ? std::optional(draft_.None())
                                      : std::nullopt;
                    });
  }
}

std::optional<Value> FileDraft::carried() const {
  return carried_ ? std::optional(carried_->value()) : std::nullopt;
}

NodeId FileDraft::Copy(const Value& value) { return copier_->Copy(value); }

NodeId FileDraft::CopyOr(const std::optional<Value>& value, NodeId fallback) {
  return value ? Copy(*value) : fallback;
}

NodeId FileDraft::Rewrite(const std::optional<Value>& dict,
                          const std::vector<Replacement>& replacements) {
  const NodeId result = draft_.Dict();
  std::vector<bool> is_used(replacements.size(), false);
  const size_t size = dict && dict->is(ValueType::kDict) ? dict->size() : 0;
  for (size_t i = 0; i < size; ++i) {
    const auto [key, value] = dict->entry(i);
    const std::string_view name =
        key.is(ValueType::kString) ? key.AsString() : std::string_view();
    const auto found =
        std::find_if(replacements.begin(), replacements.end(),
                     [name](const Replacement& r) { return name == r.first; });
    if (found == replacements.end()) {
      draft_.SetItem(result, Copy(key), Copy(value));
      continue;
    }
    is_used[static_cast<size_t>(found - replacements.begin())] = true;
    if (found->second) {
      draft_.SetItem(result, Copy(key), *found->second);
    }
  }
  for (size_t i = 0; i < replacements.size(); ++i) {
    if (!is_used[i] && replacements[i].second) {
      draft_.SetItem(result, replacements[i].first, *replacements[i].second);
    }
  }
  return result;
}

NodeId FileDraft::Declare(DType dtype, int64_t num_elements) {
  const bool untyped = torchfile::StorageClassName(dtype).empty();
  return draft_.Storage({.dtype = dtype,
                         .untyped = untyped,
                         .num_elements = untyped
                                             ? num_elements * SizeBytes(dtype)
                                             : num_elements});
}

const SinkSegment* FileDraft::segment(const std::string& key) const {
  const auto found = segments_.find(key);
  return found == segments_.end() ? nullptr : found->second;
}

NodeId FileDraft::StorageNode(const BufferView& view) {
  const SinkSegment* const buffer = segment(view.key);
  if (buffer == nullptr) {
    return Declare(view.dtype, 0);
  }
  const auto [storage, is_new] =
      storages_.try_emplace(view.key, torchfile::kNoNode);
  if (is_new) {
    storage->second = Declare(buffer->dtype, buffer->num_elements);
  }
  return storage->second;
}

NodeId FileDraft::View(const BufferView& view) {
  return draft_.Tensor({.storage = StorageNode(view),
                        .dtype = view.dtype,
                        .shape = view.shape,
                        .storage_offset = view.offset,
                        .requires_grad = view.requires_grad,
                        .attributes = view.attributes});
}

std::optional<uint32_t> FileDraft::StorageOf(const std::string& key) const {
  const auto storage = storages_.find(key);
  if (storage == storages_.end()) {
    return std::nullopt;
  }
  return static_cast<uint32_t>(draft_.tree().nodes[storage->second].value);
}

}  // namespace muonstore::deepspeed
