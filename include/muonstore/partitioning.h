// The ZeRO cut: which rank holds which elements of which parameter.
//
// What: a pure function from parameters and a rule (stage, ranks, alignment,
//   sub-group size, order) to flat groups and fragments. No I/O, no threads.
//   The rules are DeepSpeed's, as measured on its files:
//   - Stages 1 and 2: the parameters of a param group are concatenated, the
//     total is padded to a multiple of 2 * ranks and cut into equal partitions.
//   - Stage 3: each parameter is cut into `ranks` pieces of ceil(numel/ranks)
//     elements; consecutive parameters of a group form sub-groups that close
//     once their pieces sum to `sub_group_size` or more.
//   FSDP2's cut is stage 3 with `whole_rows`: pieces of ceil(rows/ranks) rows.
// Ownership: a Partitioning owns all it needs; it keeps no reference to the
//   specs that it was built from.
// Threads: immutable after construction.
// Failures: Error(kInvalidArgument) for a rule, specs or groups that make no
//   sense, Error(kDataLoss) for counts beyond 64 bits. Indices that are out of
//   range are the caller's bug.

#ifndef MUONSTORE_PARTITIONING_H_
#define MUONSTORE_PARTITIONING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/fragment.h"
#include "muonstore/parameter.h"

namespace muonstore {

// Order of the parameters inside a Muon group. DeepSpeed sorts them by shape
// (descending, stable) unless the model was built under zero.Init. Groups of
// other optimizers keep the given order always.
enum class MuonOrder {
  kAsGiven,
  kSortedByShape,
};

struct ZeroRule {
  int32_t stage = 2;  // 1, 2 or 3.
  int32_t num_ranks = 1;
  MuonOrder muon_order = MuonOrder::kSortedByShape;
  // Stages 1 and 2: partitions are a multiple of this many elements (DeepSpeed:
  // nccl_start_alignment_factor).
  int64_t flat_alignment_elements = 2;
  // Stages 1 and 2: deal parameters to ranks in turn before concatenating.
  bool round_robin = false;
  // Stages 1 and 2: start each parameter at a multiple of 16 bytes of its
  // weight dtype (DeepSpeed: zero_optimization.parameter_alignment).
  bool parameter_alignment = false;
  // Stage 3, in elements of one rank's pieces.
  int64_t sub_group_size = 1'000'000'000;
  // Stage 3: pieces are whole rows (of the first dimension), as torch.chunk and
  // PyTorch's Shard(0) cut them.
  bool whole_rows = false;
};

// A run of parameters whose partitions are stored together: a param group in
// stages 1 and 2, a sub-group in stage 3.
struct FlatGroup {
  int32_t group = 0;                // Index of the param group.
  std::vector<int32_t> parameters;  // Indices into the specs, in flat order.
  // Stages 1 and 2: offset of each parameter in the group's flat buffer.
  // Stage 3: offset of each parameter's piece in a rank's flat buffer.
  std::vector<int64_t> offsets;
  // Elements of zeros behind each parameter; all 0 in stage 3.
  std::vector<int64_t> pad_after;
  // Of all ranks: with pad_after, without the padding at the end.
  int64_t num_elements = 0;
  int64_t partition_elements = 0;  // Of each rank, with padding.
};

class Partitioning {
 public:
  // Orders and cuts `specs` by `rule`; groups ascend by the specs' `group`, and
  // those of a group have one optimizer. Frozen parameters (Optimizer::kNone)
  // and parameters without elements are in no group, as in DeepSpeed.
  static Partitioning Build(std::span<const ParameterSpec> specs,
                            const ZeroRule& rule);

  // From flat groups whose `group`, `parameters` and `pad_after` are given (as
  // a file lists them; parameters without elements may be among them); offsets
  // and sizes are computed, of `rule` only stage, ranks and alignment count.
  // `pad_after` may be empty (no padding). `partition_elements` > 0 is kept
  // where it is at least what the parameters need (a file may pad more), else
  // computed.
  static Partitioning FromGroups(std::span<const ParameterSpec> specs,
                                 const ZeroRule& rule,
                                 std::vector<FlatGroup> groups);

  int32_t stage() const { return stage_; }
  int32_t num_ranks() const { return num_ranks_; }
  bool whole_rows() const { return whole_rows_; }
  std::span<const FlatGroup> groups() const { return groups_; }
  int64_t num_parameters() const { return static_cast<int64_t>(numel_.size()); }

  // Segments are numbered rank * groups().size() + group.
  int32_t segment(int32_t rank, int32_t flat_group) const {
    return rank * static_cast<int32_t>(groups_.size()) + flat_group;
  }

  // The flat group of a parameter, or -1 for one that is in none.
  int32_t flat_group_of(int32_t parameter) const {
    return group_of_[static_cast<size_t>(parameter)];
  }

  // The pieces of a parameter, ascending by rank, empty pieces left out. They
  // cover each of its elements exactly once.
  std::vector<Fragment> fragments(int32_t parameter) const;

  // Stage 3: elements of a rank's piece, but of the last pieces, which are what
  // is left.
  int64_t piece_elements(int32_t parameter) const {
    return piece_[static_cast<size_t>(parameter)];
  }

  // Elements at the end of this rank's flat partition that belong to no
  // parameter (stages 1 and 2; DeepSpeed: group_paddings). The padding may
  // cover whole ranks. 0 in stage 3, where each piece has its own tail.
  int64_t tail_padding(int32_t rank, int32_t flat_group) const;

  // Parameters of the group that own at least one element on this rank, as
  // indices into groups()[flat_group].parameters, in flat order.
  std::vector<int32_t> parameters_on_rank(int32_t rank,
                                          int32_t flat_group) const;

 private:
  // Where a parameter stands in its flat group.
  struct Place {
    int64_t partition_elements;
    int64_t offset;
    int64_t num_elements;
    int64_t piece_elements;
  };

  Partitioning() = default;

  void IndexParameters(std::span<const ParameterSpec> specs);
  Place place(int32_t parameter) const;
  // Stages 1 and 2; stage 3.
  std::vector<Fragment> CutFragments(int32_t flat_group,
                                     const Place& place) const;
  std::vector<Fragment> PieceFragments(int32_t flat_group,
                                       const Place& place) const;
  std::vector<int32_t> CutsOnRank(int32_t rank, const FlatGroup& group) const;
  std::vector<int32_t> PiecesOnRank(int32_t rank, const FlatGroup& group) const;

  int32_t stage_ = 2;
  int32_t num_ranks_ = 1;
  bool whole_rows_ = false;
  std::vector<FlatGroup> groups_;
  std::vector<int64_t> numel_;              // By parameter.
  std::vector<int64_t> piece_;              // By parameter; stage 3.
  std::vector<int32_t> group_of_;           // By parameter.
  std::vector<int32_t> position_in_group_;  // By parameter.
};

}  // namespace muonstore

#endif  // MUONSTORE_PARTITIONING_H_
