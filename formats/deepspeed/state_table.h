// Which state kinds each flat group has, in which stored form, and whether all
// ranks hold them.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_STATE_TABLE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_STATE_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "formats/deepspeed/layout.h"
#include "formats/deepspeed/rank_states.h"
#include "muonstore/error.h"

namespace muonstore::deepspeed {

enum class StoredForm {
  kPartition,      // The flat partition or sub-group, like the masters.
  kWholeMatrices,  // See WholeMatrixForm.
};

struct GroupKind {
  StateKind kind;
  DType dtype = DType::kF32;  // As rank 0 (or the first that has it) stores it.
  StoredForm form = StoredForm::kPartition;
};

struct StateTable {
  // By flat group; the first kind is kMaster.
  std::vector<std::vector<GroupKind>> kinds;
  // By flat group, where some kind is in the whole-matrix form.
  std::vector<std::optional<WholeMatrixForm>> whole;
  // Sizes that fit no form, or state that a rank lacks.
  std::vector<Error> problems;
};

// `ranks` are all ranks, or rank 0 alone. Sizes decide the form; the config
// (`offloaded`) only where both forms have the same size on every rank.
StateTable BuildStateTable(const Layout& layout,
                           std::span<const RankStates* const> ranks,
                           bool offloaded);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_STATE_TABLE_H_
