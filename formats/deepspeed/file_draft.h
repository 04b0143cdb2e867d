// One file of the target before it is written: values, and buffers to be
// filled.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_FILE_DRAFT_H_
#define MUONSTORE_FORMATS_DEEPSPEED_FILE_DRAFT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/deepspeed/target_segments.h"
#include "formats/torchfile/carried_state.h"
#include "formats/torchfile/draft.h"
#include "formats/torchfile/tree_copier.h"

namespace muonstore::deepspeed {

// A view of a buffer.
struct BufferView {
  std::string key;  // Of the segment; one that is not there is empty.
  DType dtype = DType::kF32;
  Shape shape;
  int64_t offset = 0;
  bool requires_grad = false;
  torchfile::NodeId attributes = torchfile::kNoNode;
};

// What stands for a key of a dict: a node, or nullopt to leave the key out.
using Replacement =
    std::pair<std::string_view, std::optional<torchfile::NodeId>>;

// Borrows the segments. One thread.
class FileDraft {
 public:
  // `carried` is the source's file of the same kind, if there is one.
  FileDraft(const std::vector<KeyedSegment>& segments,
            std::optional<torchfile::TreeRef> carried);
  FileDraft(const FileDraft&) = delete;
  FileDraft& operator=(const FileDraft&) = delete;
  ~FileDraft() = default;

  torchfile::Draft& draft() { return draft_; }
  const torchfile::Draft& draft() const { return draft_; }
  // The carried file's root.
  std::optional<torchfile::Value> carried() const;
  // A copy of a carried value; logical tensors in it become None.
  torchfile::NodeId Copy(const torchfile::Value& value);
  // For the carried file; there must be one.
  torchfile::TreeCopier& copier() { return *copier_; }
  torchfile::NodeId CopyOr(const std::optional<torchfile::Value>& value,
                           torchfile::NodeId fallback);
  // A dict with the entries of `dict`, some replaced, in their order; what
  // `dict` lacks follows at the end.
  torchfile::NodeId Rewrite(const std::optional<torchfile::Value>& dict,
                            const std::vector<Replacement>& replacements);

  torchfile::NodeId View(const BufferView& view);
  // nullptr for a buffer without elements.
  const SinkSegment* segment(const std::string& key) const;
  // The draft's storage of a segment: index into its tree().storages.
  std::optional<uint32_t> StorageOf(const std::string& key) const;

 private:
  torchfile::NodeId Declare(DType dtype, int64_t num_elements);
  torchfile::NodeId StorageNode(const BufferView& view);

  torchfile::Draft draft_;
  std::unordered_map<std::string, const SinkSegment*> segments_;
  std::unordered_map<std::string, torchfile::NodeId> storages_;
  std::optional<torchfile::TreeRef> carried_;
  std::optional<torchfile::TreeCopier> copier_;
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_FILE_DRAFT_H_
