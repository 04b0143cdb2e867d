// A DeepSpeed ZeRO checkpoint (stages 1, 2, 3) as a logical Checkpoint.
//
// What: all ranks' files of one tag directory, assembled by the layout that
//   param_shapes give. Files of any writer class, precision and offload mode.
// Ownership: owns the parsed files; opens them again for each read.
// Threads: immutable after Open.
// Failures: Open throws the first thing that is wrong with the checkpoint; see
//   verify.h for all of them.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_CHECKPOINT_H_
#define MUONSTORE_FORMATS_DEEPSPEED_CHECKPOINT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/deepspeed/carried_state.h"
#include "formats/deepspeed/parts.h"
#include "formats/deepspeed/segment_table.h"
#include "formats/deepspeed/tensor_table.h"
#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"

namespace muonstore::deepspeed {

struct ReadOptions {
  // Elements that the writer lost are listed instead of refused.
  bool allow_loss = false;
  // See OpenOptions in muonstore/open.h.
  bool rank_zero_only = false;
};

class DeepSpeedCheckpoint final : public Checkpoint {
 public:
  static std::unique_ptr<DeepSpeedCheckpoint> Open(
      std::shared_ptr<FileSystem> fs, const std::string& path,
      const ReadOptions& options);

  // From parts that have a table.
  explicit DeepSpeedCheckpoint(Parts parts);

  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return table_.tensors;
  }
  std::vector<Fragment> fragments(size_t tensor) const override;
  std::span<const Segment> segments() const override;
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override;
  const torchfile::CarriedState* carried_state() const override {
    return &carried_;
  }

  const Parts& parts() const { return parts_; }

  // Lost elements as errors, one a tensor.
  std::vector<Error> Losses() const;

 private:
  const SegmentTable& segment_table() const;

  Parts parts_;
  RankFiles carried_{parts_};
  CheckpointInfo info_;
  std::optional<SegmentTable> segments_;  // Absent with rank_zero_only.
  TensorTable table_;
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_CHECKPOINT_H_
