// What an OffloadExecutor is made of.

#ifndef MUONSTORE_SRC_EXECUTOR_EXECUTOR_IMPL_H_
#define MUONSTORE_SRC_EXECUTOR_EXECUTOR_IMPL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/executor.h"
#include "muonstore/thread_pool.h"
#include "src/executor/chunk_plan.h"
#include "src/executor/element_passes.h"
#include "src/executor/gather_pool.h"
#include "src/executor/gradient_ledger.h"
#include "src/executor/muon_pipeline.h"

namespace muonstore {

class OffloadExecutor::Impl {
 public:
  Impl(StateStore& store, ExecutorOptions options);
  ~Impl();

  void Accumulate(std::string_view name, const GradientChunk& chunk);
  void AccumulateZero(std::string_view name);
  StepReport Step(const StepOptions& options);
  void Close();

  GroupHyperParameters& group(int32_t index);
  void set_max_norm(double max_norm) { options_.max_norm = max_norm; }
  void DiscardGradients();

 private:
  // What all ranks decided before the first write.
  struct Decision {
    float divisor = 1;  // Loss scale times micro-batches.
    float clip_factor = 1;
  };

  void RequireOpen() const;
  void Build();
  void LogBuffers() const;
  // The runs of this rank's segments that tasks update.
  std::vector<UpdateRun> RunsOf(std::span<const size_t> tasks) const;
  int64_t HyperParameterDigest() const;
  int64_t NewtonSchulzDigest() const;
  Optimizer OptimizerOf(int32_t flat_group) const;

  // Prepare: throws on all ranks or on none; nothing is written.
  // `exclusive` keeps leases away until the step has ended.
  float AgreeOnDivisor(const StepOptions& options,
                       std::optional<LeaseTable::Exclusive>& exclusive);
  void RequireSoundHyperParameters() const;
  ExactSum AllReduceSum(const ExactSum& sum) const;
  Decision Decide(const StepOptions& options,
                  std::optional<LeaseTable::Exclusive>& exclusive,
                  StepReport& report);
  // Commit.
  void Commit(const Decision& decision, StepReport& report);
  void UpdateMomenta(const Decision& decision);
  void RunMuon(const Decision& decision, StepReport& report);
  void ClipUpdates(const Decision& decision, StepReport& report);
  void UpdateAdam(float divisor, float clip_factor);
  void AdvanceCounters();

  bool clips_updates() const;

  StateStore::Impl& store_;
  ExecutorOptions options_;
  ThreadPool threads_;
  std::shared_ptr<Device> device_;
  ElementPasses passes_;
  GradientLedger ledger_;
  ChunkPlan plan_;
  std::unique_ptr<GatherPool> pool_;
  std::unique_ptr<MuonPipeline> pipeline_;
  uint64_t peak_gather_bytes_ = 0;
};

// Clipping by a norm, as torch and DeepSpeed do: min(1, max_norm / (norm +
// 1e-6)); 1 where max_norm is not positive.
double ClipFactor(double norm, double max_norm);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_EXECUTOR_IMPL_H_
