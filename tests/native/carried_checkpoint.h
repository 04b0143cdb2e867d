// A Checkpoint with values beside its tensors, from any torch files.
#ifndef MUONSTORE_TESTS_NATIVE_CARRIED_CHECKPOINT_H_
#define MUONSTORE_TESTS_NATIVE_CARRIED_CHECKPOINT_H_

#include <memory>
#include <utility>
#include <vector>

#include "formats/torchfile/carried_state.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore::native {

class GivenCarriedState final : public torchfile::CarriedState {
 public:
  explicit GivenCarriedState(std::vector<torchfile::CarriedRank> ranks)
      : ranks_(std::move(ranks)) {}

  int32_t num_ranks() const override {
    return static_cast<int32_t>(ranks_.size());
  }
  torchfile::CarriedRank rank(int32_t rank) const override {
    return ranks_[static_cast<size_t>(rank)];
  }

 private:
  std::vector<torchfile::CarriedRank> ranks_;
};

// Passes everything on and adds the carried state.
class CarriedCheckpoint final : public Checkpoint {
 public:
  CarriedCheckpoint(std::unique_ptr<Checkpoint> base,
                    std::vector<torchfile::CarriedRank> ranks)
      : base_(std::move(base)), carried_(std::move(ranks)) {}

  const CheckpointInfo& info() const override { return base_->info(); }
  std::span<const CheckpointTensor> tensors() const override {
    return base_->tensors();
  }
  std::vector<Fragment> fragments(size_t tensor) const override {
    return base_->fragments(tensor);
  }
  std::span<const Segment> segments() const override {
    return base_->segments();
  }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override {
    base_->ReadSegment(segment, first_element, out);
  }
  const torchfile::CarriedState* carried_state() const override {
    return &carried_;
  }

 private:
  std::unique_ptr<Checkpoint> base_;
  GivenCarriedState carried_;
};

// The small checkpoint, with model states of a real DeepSpeed file for each of
// two ranks; tensors in them stand for state.
std::unique_ptr<CarriedCheckpoint> SmallCarriedCheckpoint(float scale = 1);

}  // namespace muonstore::native

#endif  // MUONSTORE_TESTS_NATIVE_CARRIED_CHECKPOINT_H_
