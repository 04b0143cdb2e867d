// What an OffloadExecutor is made of.

#ifndef MUONSTORE_SRC_EXECUTOR_EXECUTOR_IMPL_H_
#define MUONSTORE_SRC_EXECUTOR_EXECUTOR_IMPL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/executor.h"
#include "muonstore/thread_pool.h"
#include "src/executor/buffer_pool.h"
#include "src/executor/chunk_plan.h"
#include "src/executor/element_passes.h"
#include "src/executor/gradient_ledger.h"
#include "src/executor/muon_pipeline.h"
#include "src/executor/swap_plan.h"
#include "src/kernel/accumulate.h"

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

  // A run of a gradient chunk.
  struct Folded {
    DType dtype = DType::kF32;
    AccumulateMode mode = AccumulateMode::kSet;
    std::span<const std::byte> data;
  };

  void RequireOpen() const;
  void RequireFree() const;
  void Fold(const Folded& folded, const SegmentRun& run);
  // Calls edit(first, gradients) for the gradients of a run, in memory, part by
  // part; `reads`: with what they were before.
  void EditGradients(
      const SegmentRun& run, bool reads,
      const std::function<void(int64_t, std::span<float>)>& edit);
  // What one rank can do alone, before all agree.
  void Build();
  void MakeBuffers();
  void RegisterStaging();
  void PrepareDevice();
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
  StageContext Stages() {
    return {store_, *staging_, options_.swap_mode, swapped_};
  }
  // Over all ranks; an error on one of them is thrown on all.
  ExactSum AllReduceSum(const ExactSum& sum, const std::optional<Error>& error);
  ExactSum SumGradients(bool found_overflow);
  Decision Decide(const StepOptions& options,
                  std::optional<LeaseTable::Exclusive>& exclusive,
                  StepReport& report);
  void AwaitSave();
  // Commit.
  void Commit(const Decision& decision, StepReport& report);
  std::vector<MomentumParams> MomentumOf(const Decision& decision) const;
  // What both ways of clipping have in common.
  PipelineStep MuonStep(std::span<const MomentumParams> momentum,
                        StepReport& report);
  void RunPipeline(const PipelineStep& step, StepReport& report);
  void RunMuon(const Decision& decision, StepReport& report);
  // Muon and Adam, clipped by the norm of updates.
  void RunClipped(const Decision& decision, StepReport& report);
  void AddAdamGradients(float factor, ExactSum& sum, StepReport& report);
  void ApplyAll(float factor, StepReport& report);
  void UpdateAdam(float divisor, float clip_factor, StepReport& report);
  void AdvanceCounters();

  bool clips_updates() const;

  StateStore::Impl& store_;
  ExecutorOptions options_;
  std::unique_ptr<ThreadPool> threads_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<ElementPasses> passes_;
  GradientLedger ledger_;
  ChunkPlan plan_;
  SwapPlan units_;
  std::unique_ptr<BufferPool> pool_;
  std::unique_ptr<BufferPool> staging_;
  // The tiers' own hold on the staging buffers; goes before them.
  std::vector<std::unique_ptr<IoMemory>> registered_;
  // The device's on the gather buffers; goes before them as well.
  std::unique_ptr<IoMemory> registered_gather_;
  // Until the pipeline takes them.
  std::vector<std::unique_ptr<DeviceBuffer>> device_buffers_;
  std::unique_ptr<MuonPipeline> pipeline_;
  SwapCounts swapped_;  // By the current step.
  // Some rank has state to update that a save still reads.
  bool waits_for_save_ = false;
};

// Clipping by a norm, as torch and DeepSpeed do: min(1, max_norm / (norm +
// 1e-6)); 1 where max_norm is not positive.
double ClipFactor(double norm, double max_norm);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_EXECUTOR_IMPL_H_
