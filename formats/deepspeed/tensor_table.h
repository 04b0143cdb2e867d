// The logical tensors of a checkpoint, and from which segments each is made.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_TENSOR_TABLE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_TENSOR_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "formats/deepspeed/parts.h"
#include "formats/deepspeed/segment_table.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// Where the elements of a tensor are.
struct TensorSource {
  enum class Kind {
    kState,   // Optimizer state: by the layout, from every rank's segments.
    kPieces,  // A frozen parameter in stage 3: equal pieces, rank by rank.
    kSingle,  // One segment holds it all.
  };
  Kind kind = Kind::kState;
  int32_t parameter = 0;          // kState: index into the layout's specs.
  size_t flat_group = 0;          // kState.
  size_t kind_index = 0;          // kState: index into StateTable::kinds.
  std::vector<int32_t> segments;  // kPieces: by rank; kSingle: the one.
};

struct TensorTable {
  std::vector<CheckpointTensor> tensors;
  std::vector<TensorSource> sources;  // One a tensor.
  std::vector<std::string> frozen;    // Parameters without optimizer state.
};

// Tensors of the module are added to `segments` as they are met; null: headers
// only, without segments. Error(kDataLoss) for shapes that contradict.
TensorTable BuildTensorTable(const Parts& parts, SegmentTable* segments);

// Each element from the rank whose partition owns it. Elements that a cut
// buffer should hold and does not are included: see CheckpointTensor::missing.
std::vector<Fragment> FragmentsOf(const Parts& parts,
                                  const SegmentTable& segments,
                                  const TensorSource& source,
                                  int64_t num_elements);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_TENSOR_TABLE_H_
