// A naive conversion: fills every buffer by reading the source piece by piece.
#ifndef MUONSTORE_TESTS_DEEPSPEED_CONVERT_IN_TEST_H_
#define MUONSTORE_TESTS_DEEPSPEED_CONVERT_IN_TEST_H_

#include <string>
#include <vector>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/sink.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::deepspeed {

// Makes every file and commits.
void FillAndCommit(const Checkpoint& source, CheckpointSink& sink);

// The layout that the source itself has.
TargetLayout OwnLayout(const DeepSpeedCheckpoint& source);

struct Wish {
  int32_t stage = 2;
  int32_t num_ranks = 1;
  std::string offload = "none";
  MuonOrder order = MuonOrder::kAsGiven;
  int64_t sub_group_size = 1'000'000'000;
  bool parameter_alignment = false;
};
std::string ToString(const Wish& wish);

// The source's parameters in its own order, cut as wished.
TargetLayout LayoutOf(const Checkpoint& source, const Wish& wish);

// Writes `source` below `root` and opens the result.
std::unique_ptr<DeepSpeedCheckpoint> ConvertTo(const Checkpoint& source,
                                               const TargetLayout& layout,
                                               const std::string& root,
                                               const std::string& tag);

// "" or the first tensor that differs, bit for bit. Elements that `a` lacks
// must be zero in `b`; tensors without elements may be missing, and values may
// be widened to float32.
std::string DifferenceOf(const Checkpoint& a, const Checkpoint& b);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_TESTS_DEEPSPEED_CONVERT_IN_TEST_H_
