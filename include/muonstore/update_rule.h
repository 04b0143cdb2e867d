// Choices of the Muon and Adam updates that a training run makes.
//
// What: the factor by which Muon's step depends on a matrix's shape, and the
//   orders in which systems compute Adam.
// Ownership, threads: plain values and pure functions.
// Failures: Error(kInvalidArgument) for a shape with a negative side.

#ifndef MUONSTORE_UPDATE_RULE_H_
#define MUONSTORE_UPDATE_RULE_H_

#include <cstdint>

namespace muonstore {

enum class MuonScaleMode {
  kSpectral,  // max(1, rows / cols)^0.5: Keller Jordan, DeepSpeed, torch.
  kMatchRms,  // 0.2 * max(rows, cols)^0.5: Moonlight; RMS as AdamW's.
};

// The factor for one matrix of a layout (a head, a block, an expert, a folded
// convolution). 1 (0 for kMatchRms) for a matrix without elements.
double MuonScale(MuonScaleMode mode, int64_t rows, int64_t cols);

// Both orders agree to float rounding; each matches its system's bits best.
enum class AdamOrder {
  kTorch,      // torch.optim.AdamW, single tensor.
  kDeepSpeed,  // DeepSpeedCPUAdam.
};

}  // namespace muonstore

#endif  // MUONSTORE_UPDATE_RULE_H_
