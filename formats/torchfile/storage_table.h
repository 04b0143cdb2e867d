// Persistent ids: the tuples by which a pickle names its storages.
//
// What: ("storage", class, key, location, numel) in a zip file, one field more
//   (view metadata) in a legacy stream. One StorageInfo a key; a storage that
//   occurs again gives the same node.
// Ownership: borrows the builder and the resolver.
// Threads: one thread.
// Failures: Error(kDataLoss) for malformed or contradicting ids;
//   Error(kUnsupported) for quantized and meta storages and for a class slot
//   that holds a refused callable.

#ifndef MUONSTORE_FORMATS_TORCHFILE_STORAGE_TABLE_H_
#define MUONSTORE_FORMATS_TORCHFILE_STORAGE_TABLE_H_

#include <functional>
#include <utility>
#include <vector>

#include "formats/torchfile/tree_builder.h"
#include "formats/torchfile/value.h"

namespace muonstore::torchfile {

class StorageTable {
 public:
  enum class Container { kZip, kLegacy };
  // Fills in `record` of a storage by its key, and in a zip file its
  // offset_bytes, or throws. Records are numbered from 0 without gaps.
  using Resolver = std::function<void(StorageInfo&)>;

  StorageTable(TreeBuilder& builder, Container container, Resolver resolver)
      : builder_(builder),
        container_(container),
        resolver_(std::move(resolver)) {}

  // The node of the storage (or, in legacy streams, the module) that a
  // persistent id names.
  NodeId Load(NodeId persistent_id);

 private:
  StorageInfo Parse(const Value& id) const;
  void ReadClass(const Value& cls, StorageInfo& storage) const;
  void RequireSame(const StorageInfo& earlier,
                   const StorageInfo& storage) const;
  void ReadView(const Value& view, StorageInfo& storage) const;

  TreeBuilder& builder_;
  Container container_;
  Resolver resolver_;
  std::vector<NodeId> by_record_;
};

// Bytes of `num_elements` elements of a storage; Error(kDataLoss) on overflow.
uint64_t StorageBytes(const StorageInfo& storage, int64_t num_elements);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_STORAGE_TABLE_H_
