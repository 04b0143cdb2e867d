// From what the files list to the partitioning that they follow.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_LAYOUT_H_
#define MUONSTORE_FORMATS_DEEPSPEED_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "formats/deepspeed/model_states.h"
#include "formats/deepspeed/rank_states.h"
#include "muonstore/checkpoint.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore::deepspeed {

struct Layout {
  std::vector<ParameterSpec> specs;  // Trainable ones, in flat order.
  std::vector<ParamGroup> groups;    // Param groups in the file's order.
  Partitioning partitioning;
};

// The order of param_shapes is the authority; the sizes come from rank 0's
// buffers. Error(kDataLoss) when the two contradict each other.
Layout BuildLayout(const ModelStates& model, const RankStates& rank0,
                   int32_t num_ranks);

// DeepSpeed's whole-matrix form of momentum (stages 1 and 2 without offload):
// a rank's buffer holds all elements of every parameter that it owns a part of,
// back to back in flat order, without any padding.
class WholeMatrixForm {
 public:
  WholeMatrixForm(const Layout& layout, int32_t flat_group);

  // Elements of a rank's buffer.
  int64_t num_elements(int32_t rank) const;
  // Parameters (indices into specs) in a rank's buffer, in order.
  const std::vector<int32_t>& parameters(int32_t rank) const {
    return by_rank_[static_cast<size_t>(rank)];
  }
  // Where a parameter starts in the buffer of a rank that owns a part of it.
  int64_t offset(int32_t rank, int32_t parameter) const;

 private:
  int32_t first_parameter_;     // Specs of a flat group are consecutive.
  std::vector<int64_t> start_;  // By position; one more for the end.
  std::vector<std::vector<int32_t>> by_rank_;
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_LAYOUT_H_
