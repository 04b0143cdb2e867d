// The Muon + Adam step over a state store.
//
// What: `Accumulate` folds gradients as they arrive; `Step` applies them:
//   G = accumulated / (loss scale * micro-batches), clipped; for Muon groups
//   M = mu M + (1 - mu) G or mu M + G, U = NewtonSchulz(M, or Nesterov's blend)
//   of each matrix of the parameter's layout, W = W (1 - lr wd) - lr scale U;
//   for Adam groups AdamW. docs/numerics.md has every formula with its source.
//   Each matrix is orthogonalized once over all ranks, on the rank that the
//   plan gives it to; what other ranks hold of it is gathered and scattered.
//   Results are the same bits for every stage, number of ranks and threads,
//   tier, and with or without overlap. State on a tier that is not memory
//   passes through staging buffers; the previous generation stays on the tier
//   until the step has ended.
// Ownership: refers to the store, which must outlive it. One executor a store.
// Threads: one thread at a time. Step, Close and the constructor are
//   collective.
// Failures: a step is a transaction. What depends on data is decided by all
//   ranks before the first write: an overflow skips the step, an error on one
//   rank (incomplete gradients, hyper-parameters that differ) is thrown on all,
//   and nothing has changed. A fault after the decision poisons the store.
//   Error(kInvalidArgument) names parameter and shapes; Error(kUnavailable) the
//   rank that is gone.

#ifndef MUONSTORE_EXECUTOR_H_
#define MUONSTORE_EXECUTOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/device.h"
#include "muonstore/dtype.h"
#include "muonstore/newton_schulz.h"
#include "muonstore/shape.h"
#include "muonstore/store.h"
#include "muonstore/tier.h"
#include "muonstore/update_rule.h"

namespace muonstore {

// Of one param group; may change before every step, alike on all ranks.
struct GroupHyperParameters {
  double lr = 0.02;
  double weight_decay = 0;
  // Muon groups.
  double momentum = 0.95;
  bool nesterov = true;
  MuonScaleMode scale = MuonScaleMode::kSpectral;
  // Adam groups.
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  AdamOrder adam_order = AdamOrder::kTorch;
  // False: classic Adam, whose weight decay is part of the gradient.
  bool decoupled_decay = true;
};

// How state on a tier that is not memory passes through it.
enum class SwapMode {
  kPartitioned,  // Each part is read, worked on and written, in turn.
  kPipelined,    // Part k + 1 is read and k - 1 written while k is worked on.
};

struct ExecutorOptions {
  // Of the store's param groups, in their order.
  std::vector<GroupHyperParameters> groups;
  NewtonSchulzOptions newton_schulz;
  // Clipping is by the store's record (StoreRecord::clipping); <= 0: off.
  double max_norm = 1.0;
  // Gradients of micro-batches are averaged; false: summed.
  bool average_micro_batches = true;
  int num_threads = 1;
  // Gather and scatter beside the computation.
  bool overlap = true;
  // Bytes of this rank's gather buffers. 0: 256 MB, or two of the largest
  // matrix where that is more. A limit that is set is hard: a matrix that
  // cannot fit is an error of the constructor.
  uint64_t max_gather_bytes = 0;
  SwapMode swap_mode = SwapMode::kPipelined;
  // Bytes of this rank's staging buffers, where state lies on a tier that is
  // not memory. 0: 256 MB, or what the largest matrix needs where that is more.
  // A limit that is set is hard, as above.
  uint64_t max_swap_bytes = 0;
  // Whether gather and staging buffers are page-locked, as far as the limits
  // allow, and known to the device.
  Pinning buffer_pinning = Pinning::kTry;
  // Null: this host's processor.
  std::shared_ptr<Device> device;
};

// A part of a parameter's gradient: consecutive elements in row-major order,
// averaged over ranks. What other ranks own of it is passed over.
struct GradientChunk {
  DType dtype = DType::kF32;  // f32, bf16 or f16.
  std::span<const std::byte> data;
  int64_t first_element = 0;
  // Checked against the parameter's where it is given.
  std::optional<Shape> parameter_shape;
};

struct StepOptions {
  // Gradients were multiplied by it.
  double loss_scale = 1;
  // This rank knows of an element that was not finite, of which the gradients
  // may show no more: all ranks skip the step. Counts in num_nonfinite.
  bool found_overflow = false;
};

// The same on every rank unless it says "this rank".
struct StepReport {
  // A gradient was not finite, or the norm of all was beyond 1.8e19, where
  // squares have no float: nothing changed but the skipped-steps counter.
  bool overflow = false;
  // Non-finite gradient elements, over all ranks.
  int64_t num_nonfinite = 0;
  // As the clipping mode defines it; of true gradients where clipping is off.
  double norm = 0;
  double clip_factor = 1;
  // Matrices that all ranks, and this rank, orthogonalized.
  int64_t num_orthogonalized = 0;
  int64_t num_orthogonalized_here = 0;
  // This rank: received from other ranks; largest use of gather buffers.
  uint64_t received_bytes = 0;
  uint64_t peak_gather_bytes = 0;
  // This rank: read from and written to tiers that are not memory; largest use
  // of staging buffers.
  uint64_t swap_read_bytes = 0;
  uint64_t swap_written_bytes = 0;
  uint64_t peak_swap_bytes = 0;
  // This rank: copied to and from a device with memory of its own; most that
  // it took of that memory since it was made.
  uint64_t device_in_bytes = 0;
  uint64_t device_out_bytes = 0;
  uint64_t peak_device_bytes = 0;
  // This rank, seconds: deciding, element-wise passes, waiting for exchanges,
  // waiting for reads and writes of tiers, orthogonalizing, all.
  double prepare_s = 0;
  double update_s = 0;
  double exchange_s = 0;
  double swap_s = 0;
  // Part of the others: waiting for a save that reads state of which this rank
  // has no second copy (StoreOptions::max_snapshot_bytes).
  double snapshot_wait_s = 0;
  double orthogonalize_s = 0;
  double total_s = 0;
};

class OffloadExecutor {
 public:
  OffloadExecutor(StateStore& store, ExecutorOptions options);
  ~OffloadExecutor();
  OffloadExecutor(const OffloadExecutor&) = delete;
  OffloadExecutor& operator=(const OffloadExecutor&) = delete;

  // Index as ParameterSpec::group.
  GroupHyperParameters& group(int32_t index);
  // Replaces ExecutorOptions::max_norm.
  void set_max_norm(double max_norm);

  // Not collective. Each element that this rank owns comes once a micro-batch;
  // one that comes twice is an error and changes nothing. The next micro-batch
  // of a parameter begins when all of its elements have come.
  void Accumulate(std::string_view name, const GradientChunk& chunk);
  // The parameter has no gradient in this micro-batch: zeros.
  void AccumulateZero(std::string_view name);
  // Forgets what was accumulated.
  void DiscardGradients();

  // Collective. The gradients are complete: every parameter has had the same
  // number of micro-batches, at least one. They are forgotten afterwards, also
  // when the step is skipped.
  StepReport Step(const StepOptions& options = {});

  // Collective: frees the gather buffers.
  void Close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muonstore

#endif  // MUONSTORE_EXECUTOR_H_
