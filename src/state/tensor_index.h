// Finds tensors of a checkpoint by key in constant time.
//
// What: FindTensor (checkpoint.h) for callers that ask about every tensor.
//   Tied names resolve to the kept one.
// Ownership: keeps a reference to the Checkpoint, which must outlive it.
// Threads: const after construction.

#ifndef MUONSTORE_SRC_STATE_TENSOR_INDEX_H_
#define MUONSTORE_SRC_STATE_TENSOR_INDEX_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "muonstore/checkpoint.h"

namespace muonstore {

class TensorIndex {
 public:
  explicit TensorIndex(const Checkpoint& checkpoint);

  std::optional<size_t> Find(const TensorKey& key) const;

 private:
  const Checkpoint& checkpoint_;
  std::map<TensorKey, size_t> index_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STATE_TENSOR_INDEX_H_
