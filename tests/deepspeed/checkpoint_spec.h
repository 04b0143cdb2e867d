// What a test's checkpoint is to be like, and which values it holds.
//
// What: the spec, the names of its files, and the value of every element by
//   the oracle's label. All of it is computed naively.
// Failures: none.
#ifndef MUONSTORE_TESTS_DEEPSPEED_CHECKPOINT_SPEC_H_
#define MUONSTORE_TESTS_DEEPSPEED_CHECKPOINT_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/dtype.h"
#include "tests/oracle/zero_oracle.h"

namespace muonstore::deepspeed {

struct CheckpointSpec {
  // Parameter k is named "p<k>". Those that are not trained, or have no
  // element, are in no group: frozen.
  std::vector<oracle::Parameter> parameters;
  oracle::Rule rule;
  DType precision = DType::kBF16;       // Of the weights.
  DType momentum_dtype = DType::kBF16;  // Of the whole-matrix form, stage 3.
  bool bf16_optimizer = false;          // Stage 1: BF16_Optimizer wrote it.
  bool offloaded = false;               // Momentum as a flat partition (1, 2).
  bool elastic = false;                 // Stages 1 and 2.
  bool state_on_empty_ranks = true;     // Ranks that own padding only.
  bool step_is_tensor = false;
  int64_t num_buffers = 0;
  bool tied = false;          // "alias" is tied to the first parameter.
  bool client_state = false;  // Keys beside DeepSpeed's own.
  // Stage 3: sub-groups whose index modulo 2 is this are on NVMe; -1: none.
  int swapped_parity = -1;
  // Parameters without elements that stand in the group lists, as DeepSpeed
  // up to 0.19.6 wrote them: before, between and behind the others.
  bool empty_in_groups = false;
};

// The number of elements of a parameter.
int64_t CountOf(const oracle::Parameter& parameter);

// Whether the parameter has optimizer state.
bool IsInGroup(const oracle::Parameter& parameter);

std::string OptimFile(const CheckpointSpec& spec, int rank);
// Of rank 0 in stages 1 and 2, whatever the rank.
std::string ModelFile(const CheckpointSpec& spec, int rank);

// In which dtype the files hold a kind of state of `flat_group`.
DType StoredDType(const CheckpointSpec& spec, std::string_view kind,
                  size_t flat_group);
// The value of an element as it is stored.
float ValueOf(const CheckpointSpec& spec, std::string_view kind, DType dtype,
              int64_t label);

// Its bytes; for oracle::kPadding those of a NaN.
std::string BytesOf(const CheckpointSpec& spec, std::string_view kind,
                    DType dtype, int64_t label);

// Every element of the parameters in a rank's whole-matrix buffer.
std::vector<int64_t> WholeLabels(const CheckpointSpec& spec,
                                 const oracle::Group& group, int rank);
// Elements at the end of the rank's labels that belong to no parameter; the
// alignment paddings between parameters do not count.
int64_t TailPadding(const oracle::Group& group, int rank);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_TESTS_DEEPSPEED_CHECKPOINT_SPEC_H_
