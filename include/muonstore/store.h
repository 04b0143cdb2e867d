// The state store: FP32 masters, Muon momentum and Adam moments of one rank,
// each element of which knows its parameter, row and column.
//
// What: a StateStore holds this rank's segments of every state kind under a
//   partitioning: "master" (f32), "momentum" (Muon, f32), "exp_avg",
//   "exp_avg_sq" (Adam, f32), "gradient" (accumulated, f32) and "weight" (the
//   compute weight, in the parameter's weight dtype). Frozen parameters
//   (Optimizer::kNone) hold no state. A new store is all zeros.
//   OffloadExecutor (executor.h) steps it; LoadCheckpoint (load.h) fills it.
// Ownership: owns its arenas; shares tiers and communicator. Leases and
//   executors must not outlive it.
// Threads: members marked collective are called by all ranks in the same order,
//   on one thread; the others may be called from many threads.
// Failures: construction throws Error(kInvalidArgument) for parameters that
//   have no place in a store and for ranks that disagree, and
//   Error(kResourceExhausted) for what cannot fit. After a fault in the middle
//   of a step the store is poisoned: every call throws Error(kUnavailable).

#ifndef MUONSTORE_STORE_H_
#define MUONSTORE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/lease.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"
#include "muonstore/store_options.h"

namespace muonstore {

// A whole tensor, gathered from the ranks that hold it: row-major, read-only.
struct GatheredTensor {
  TensorKey key;
  Shape shape;
  DType dtype = DType::kF32;
  std::vector<std::byte> data;

  // Throws where dtype is not f32.
  std::span<const float> f32() const;
};

// How the norm of a step's gradients is clipped; recorded state.
enum class ClippingMode {
  kGradients,  // By the global norm of the true gradients, before momentum.
  kDeepSpeed,  // By the norm of orthogonalized updates and Adam gradients.
  kOff,
};
// "gradients", "deepspeed", "off".
std::string_view ClippingModeName(ClippingMode mode);

// What a store records beside its tensors; a checkpoint keeps it.
struct StoreRecord {
  MomentumConvention convention = MomentumConvention::kLerp;
  ClippingMode clipping = ClippingMode::kGradients;
  // Steps that changed state, over all groups, and steps that were skipped.
  int64_t steps = 0;
  int64_t skipped_steps = 0;
  // Steps of each param group: Adam's bias correction counts them.
  std::vector<int64_t> group_steps;
};

class StateStore {
 public:
  // Collective. `partitioning` is built from `parameters` and its number of
  // ranks is the communicator's.
  StateStore(std::vector<ParameterSpec> parameters, Partitioning partitioning,
             StoreOptions options);
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  // What the constructor would take on `rank`; allocates nothing. The tier
  // names need options.tiers, the communicator is not used.
  static StoreEstimate Estimate(std::span<const ParameterSpec> parameters,
                                const Partitioning& partitioning, int32_t rank,
                                const StoreOptions& options);

  std::span<const ParameterSpec> parameters() const;
  const Partitioning& partitioning() const;
  int32_t rank() const;
  Communicator& communicator() const;
  // Index into parameters(); Error(kNotFound) lists similar names.
  int32_t FindParameter(std::string_view name) const;
  // The state kinds that a parameter has: empty for a frozen one.
  std::vector<StateKind> kinds(int32_t parameter) const;

  ReadLease Read(std::string_view name, const StateKind& kind);
  WriteLease Write(std::string_view name, const StateKind& kind);
  // Number of committed updates; the same on every rank. Gradients have none:
  // they are sums of what came since the last step.
  uint64_t generation(std::string_view name, const StateKind& kind) const;

  // Sets this rank's part of a tensor from its whole, in the kind's dtype
  // rounded to nearest even: one committed write. Every rank calls it.
  void Set(std::string_view name, const StateKind& kind,
           std::span<const float> whole);
  // Collective: the whole tensor on every rank.
  GatheredTensor Gather(std::string_view name, const StateKind& kind);

  StoreRecord& record();
  const StoreRecord& record() const;
  // What each arena got of its page-locking.
  std::vector<PinReport> pin_reports() const;

  // After this every call throws Error(kUnavailable) with the reason.
  void Poison(std::string_view reason);
  bool poisoned() const;

  // Collective: withdraws its memory from the communicator and frees it. Throws
  // on all ranks where a lease is held, or a save is under way, on any. The
  // destructor frees it too, and swallows what goes wrong.
  void Close();

  class Impl;  // src/store
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace muonstore

#endif  // MUONSTORE_STORE_H_
