// Copies values of a read file into a draft.
//
// What: a node and all that it reaches: sharing, cycles, opaque objects,
// tensors
//   with their attributes. Storages are taken over by reference: their bytes
//   are streamed from the source when the draft is written, never held in
//   memory. A hook may put another node of the draft in the place of a source
//   node.
// Ownership: borrows the draft; copied storages keep the source file alive.
// Threads: one thread.
// Failures: Error(kUnsupported) for a storage that is a piece of another one
//   (legacy streams of torch 0.3) and for an untyped storage of a big-endian
//   file, whose bytes cannot be put in order.

#ifndef MUONSTORE_FORMATS_TORCHFILE_TREE_COPIER_H_
#define MUONSTORE_FORMATS_TORCHFILE_TREE_COPIER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "formats/torchfile/draft.h"
#include "formats/torchfile/torch_file.h"

namespace muonstore::torchfile {

class TreeCopier {
 public:
  // Asked once for each source node that is reached, storages excepted: what
  // stands for it, or nullopt for a copy.
  using Replace = std::function<std::optional<NodeId>(const Value&)>;

  TreeCopier(Draft& draft, std::shared_ptr<const TorchFile> source,
             Replace replace = {});

  // The copy of a source node. What several calls reach is copied once.
  NodeId Copy(NodeId node);
  NodeId Copy(const Value& value) { return Copy(value.id()); }

 private:
  NodeId Map(NodeId node);
  NodeId Start(const Value& value);
  NodeId StartTensor(const Value& value);
  NodeId MapStorage(uint32_t storage);
  uint32_t MapGlobal(uint32_t global);
  void Fill(NodeId from);
  void FillItems(const Value& from, NodeId to);
  void FillParts(const Value& from, NodeId to);
  NodeId MapOptional(NodeId node);
  std::vector<NodeId> MapAll(std::span<const NodeId> nodes);

  Draft& draft_;
  std::shared_ptr<const TorchFile> source_;
  Replace replace_;
  std::unordered_map<NodeId, NodeId> copies_;
  std::unordered_map<uint32_t, NodeId> storages_;
  std::vector<NodeId> pending_;  // Started, to be filled.
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_TREE_COPIER_H_
