// The buffers of the files to be written, and what of the source is in them.
//
// What: for each file, its buffers in the order of the file. Optimizer state in
//   the form that the loading class wants: partitions, sub-groups, or whole
//   matrices. Padding is zero: no piece covers it.
// Ownership: borrows the target. Threads: immutable. Failures: Error(kDataLoss)
//   where the source has a state of some parameters of a group and not of
//   others; Error(kUnsupported) for what has no place in a flat buffer.

#ifndef MUONSTORE_FORMATS_DEEPSPEED_TARGET_SEGMENTS_H_
#define MUONSTORE_FORMATS_DEEPSPEED_TARGET_SEGMENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "formats/deepspeed/target.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::deepspeed {

// `key` finds the buffer when the file's values are built.
struct KeyedSegment {
  std::string key;
  SinkSegment segment;
};

// "momentum of flat group 2", "weights of flat group 0", "frozen x", ...
std::string StateKey(std::string_view kind, size_t flat_group);
std::string WeightsKey(size_t flat_group);
std::string TensorKeyOf(const std::string& name);
std::string FragmentKey(const std::string& name);

class TargetSegments {
 public:
  explicit TargetSegments(const Target& target);

  // Kinds of state of a flat group, beside the masters.
  const std::vector<StateKind>& kinds(size_t flat_group) const {
    return kinds_[flat_group];
  }
  // Empty buffers are left out.
  std::vector<KeyedSegment> OfOptimFile(int32_t rank) const;
  std::vector<KeyedSegment> OfModelFile(int32_t rank) const;

  // Elements of a frozen parameter's piece in stage 3.
  int64_t PieceElements(size_t tensor) const;

 private:
  void FindKinds(size_t flat_group);
  bool IsWhole(std::string_view kind, size_t flat_group) const;
  SinkSegment State(std::string_view kind, int32_t rank,
                    size_t flat_group) const;
  void AddWhole(std::string_view kind, int32_t rank, size_t flat_group,
                SinkSegment& segment) const;
  SinkSegment Weights(size_t flat_group) const;
  void RequireDType(const ParameterSpec& spec, DType dtype) const;
  SinkSegment WholeTensor(const ModuleEntry& entry) const;
  SinkSegment Piece(const ModuleEntry& entry, int32_t rank) const;
  size_t Require(int32_t parameter, std::string_view kind) const;
  DType DTypeOf(std::string_view kind, size_t flat_group) const;
  double FactorOf(std::string_view kind, size_t flat_group) const;

  const Target& target_;
  double momentum_factor_ = 1;
  std::vector<std::vector<StateKind>> kinds_;  // By flat group.
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_TARGET_SEGMENTS_H_
