// Finds the tensors of a source checkpoint by name and kind.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_SOURCE_INDEX_H_
#define MUONSTORE_FORMATS_DEEPSPEED_SOURCE_INDEX_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::deepspeed {

class SourceIndex {
 public:
  // Borrows the checkpoint.
  explicit SourceIndex(const Checkpoint& source);

  const Checkpoint& source() const { return source_; }
  const CheckpointTensor& tensor(size_t index) const {
    return source_.tensors()[index];
  }
  std::optional<size_t> Find(const std::string& name,
                             std::string_view kind) const;
  // Kinds of optimizer state that a parameter has, in the source's order;
  // without weight and buffer.
  std::vector<StateKind> StateKindsOf(const std::string& name) const;

 private:
  const Checkpoint& source_;
  std::unordered_map<std::string, std::vector<size_t>> by_name_;
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_SOURCE_INDEX_H_
