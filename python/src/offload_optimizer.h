// The state of a PyTorch optimizer: store, executor and saver behind one door.
//
// What: parameters are known by their index; a rank hands in and takes back
//   what it has of each. `kReplicated`: every rank has whole tensors, as with
//   DDP, and the cut is ZeRO-2's. `kRowShards`: each rank has its own rows, as
//   with FSDP2, and the cut is the same.
// Ownership: owns all of it; shares the communicator. Memory that is handed in
//   is the caller's and is not kept.
// Threads: one call at a time. The members marked collective are called by all
//   ranks in the same order.
// Failures: those of StateStore, OffloadExecutor, Saver and Resume;
//   Error(kUnavailable) in a process that was forked off, which has the memory
//   but none of the threads.

#ifndef MUONSTORE_PYTHON_SRC_OFFLOAD_OPTIMIZER_H_
#define MUONSTORE_PYTHON_SRC_OFFLOAD_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/copy_plan.h"
#include "muonstore/executor.h"
#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "muonstore/store.h"

namespace muonstore::python {

enum class Placement { kReplicated, kRowShards };

struct OffloadOptions {
  Placement placement = Placement::kReplicated;
  std::shared_ptr<Communicator> communicator;
  TierPolicy tiers;
  uint64_t max_snapshot_bytes = 0;
  ExecutorOptions executor;
  MomentumConvention convention = MomentumConvention::kLerp;
};

// Values of one parameter, in row-major order.
struct Values {
  DType dtype = DType::kF32;
  std::span<const std::byte> data;
};

// What several threads use, one of which may close it.
template <typename T>
class Held {
 public:
  Held(std::shared_lock<std::shared_mutex> lock, T* object)
      : lock_(std::move(lock)), object_(object) {}
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }

 private:
  std::shared_lock<std::shared_mutex> lock_;
  T* object_;
};

class OffloadOptimizer {
 public:
  // Collective.
  OffloadOptimizer(std::vector<ParameterSpec> parameters,
                   const OffloadOptions& options);
  ~OffloadOptimizer();
  OffloadOptimizer(const OffloadOptimizer&) = delete;
  OffloadOptimizer& operator=(const OffloadOptimizer&) = delete;

  // The elements of a parameter that this rank hands in and takes back.
  ElementRange own_range(int32_t parameter) const;

  // Collective: the bits that any rank has.
  int64_t OrRanks(int64_t bits);
  // Whether the store's compute weights are these, in this rank's fragments.
  bool HasWeights(int32_t parameter, const Values& weights) const;
  // Compute weights as they are in the model; a master follows where its
  // weight is another than the store's. Every rank calls it.
  void TakeWeights(int32_t parameter, const Values& weights);
  // Where new compute weights go.
  struct Target {
    int32_t parameter = 0;
    std::span<std::byte> data;
  };
  // Collective: the same parameters, in the same order.
  void GiveWeights(std::span<const Target> targets);

  void Accumulate(int32_t parameter, const Values& gradient);
  void AccumulateZero(int32_t parameter);
  void DiscardGradients();
  void SetGroup(int32_t index, const GroupHyperParameters& group);
  void set_max_norm(double max_norm);
  // Collective.
  StepReport Step(const StepOptions& options);
  // Collective with the Step of the other ranks, which fails on all.
  void RefuseStep();

  // The state of a parameter's own range. With replicated parameters reading is
  // collective, and every rank writes.
  void ReadState(int32_t parameter, const StateKind& kind,
                 std::span<std::byte> out);
  void WriteState(int32_t parameter, const StateKind& kind,
                  const Values& values);
  std::vector<int64_t> group_steps() const;
  void set_group_steps(const std::vector<int64_t>& steps);

  // Collective.
  SaveHandle Save(const std::string& root, const std::string& tag,
                  SaveOptions options);
  ResumeReport Resume(const std::string& root, const ResumeOptions& options);

  // Whether the store's weights are newer than what GiveWeights gave: a step or
  // a resume was done and the caller was interrupted.
  bool owes_weights() const { return owes_weights_; }

  uint64_t memory_bytes() const { return memory_bytes_; }
  uint64_t swapped_bytes() const { return swapped_bytes_; }

  // Collective, and without a fault where it is called again. kUnavailable
  // while another thread is in a call.
  void Close();

 private:
  // Open while they are held: a Close on another thread is refused.
  Held<StateStore> store() const;
  Held<OffloadExecutor> executor() const;
  const std::string& name(int32_t parameter) const;
  void RequireProcess() const;
  void RequireSize(int32_t parameter, size_t size_bytes, DType dtype) const;
  void WritePieces(int32_t parameter, const StateKind& kind,
                   std::span<const float> values);
  void CopyOwnWeights(std::span<const Target> targets);
  void GatherWeights(std::span<const Target> targets);

  std::shared_lock<std::shared_mutex> Hold() const;

  int64_t process_;
  mutable std::shared_mutex in_use_;
  Placement placement_;
  std::shared_ptr<Communicator> communicator_;
  std::vector<ParameterSpec> parameters_;
  std::vector<ElementRange> own_ranges_;
  int32_t num_groups_ = 0;
  uint64_t memory_bytes_ = 0;
  uint64_t swapped_bytes_ = 0;
  bool owes_weights_ = false;
  // In this order: the later ones refer to the earlier.
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<OffloadExecutor> executor_;
  std::unique_ptr<Saver> saver_;
  std::string saver_root_;
};

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_OFFLOAD_OPTIMIZER_H_
