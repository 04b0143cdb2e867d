// A Checkpoint made of vectors, for tests of what works on any Checkpoint.
//
// What: tensors are added with their values; each is cut into pieces that lie
//   in segments of different ranks, last piece first, so that code which takes
//   storage order for element order shows.
// Ownership: owns its values.
// Threads: const members may run on many threads; fill it on one.
// Failures: a read of a poisoned tensor is Error(kDataLoss).

#ifndef MUONSTORE_TESTS_TESTUTIL_MEMORY_CHECKPOINT_H_
#define MUONSTORE_TESTS_TESTUTIL_MEMORY_CHECKPOINT_H_

#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"

namespace muonstore::testutil {

struct MemoryTensor {
  std::string parameter;
  std::string kind = "momentum";
  std::vector<int64_t> shape;
  DType dtype = DType::kF32;
  int32_t group = 0;
  int32_t num_pieces = 1;  // Ranks 0 .. num_pieces - 1 hold one each.
};

class MemoryCheckpoint final : public Checkpoint {
 public:
  // Returns the index of the tensor.
  size_t Add(const MemoryTensor& tensor, std::span<const std::byte> bytes);
  // `values` are rounded to the dtype (f64, f32, f16 or bf16).
  size_t Add(const MemoryTensor& tensor, const std::vector<float>& values);

  // The weight of a parameter whose master was added: round(master).
  size_t AddDerived(const std::string& parameter, DType dtype);

  CheckpointInfo& mutable_info() { return info_; }
  CheckpointTensor& mutable_tensor(size_t tensor) { return tensors_[tensor]; }
  // Changes one stored element; `bytes` has its size.
  void SetElement(size_t tensor, int64_t element,
                  std::span<const std::byte> bytes);
  // Every read of this tensor fails from now on.
  void Poison(size_t tensor);

  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return tensors_;
  }
  std::vector<Fragment> fragments(size_t tensor) const override {
    return fragments_[tensor];
  }
  std::span<const Segment> segments() const override { return segments_; }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override;

 private:
  CheckpointInfo info_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<std::vector<Fragment>> fragments_;  // By tensor.
  std::vector<Segment> segments_;
  std::vector<std::vector<std::byte>> data_;  // By segment.
  std::set<int32_t> poisoned_;                // Segments.
};

// 1, 2, 3, ... scaled: every element has a value of its own.
std::vector<float> UniqueValues(int64_t count, float scale = 0.25F);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_MEMORY_CHECKPOINT_H_
