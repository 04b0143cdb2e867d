// Orthogonalizes every matrix of a step, gather and scatter beside it.
//
// What: matrices that lie whole on this rank are done where they are; the
//   others go through gather buffers round by round. While round k computes,
//   round k + 1 is gathered and round k - 1 scattered; what lies on disk is
//   read before and written after. An accelerator computes asynchronously: its
//   results are scattered one round later.
// Ownership: refers to the plans, device, communicator and pools.
// Threads: one. Run is collective: exchanges start in the same order on every
//   rank, whatever the ranks' speeds.
// Failures: what exchanges, tiers and the device throw; everything under way
//   has ended when Run throws.

#ifndef MUONSTORE_SRC_EXECUTOR_MUON_PIPELINE_H_
#define MUONSTORE_SRC_EXECUTOR_MUON_PIPELINE_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/device.h"
#include "muonstore/parameter.h"
#include "src/executor/buffer_pool.h"
#include "src/executor/chunk_exchange.h"
#include "src/executor/chunk_plan.h"
#include "src/executor/stage_stream.h"
#include "src/executor/swap_plan.h"

namespace muonstore {

// What one step gives the pipeline.
struct PipelineStep {
  std::span<const StagedKind> kinds;
  // Makes what is orthogonalized, in this rank's elements of the tasks.
  std::function<void(Stage&, std::span<const size_t> tasks)> prepare;
  // The kind that holds it; the update goes to kGradient.
  std::function<std::string_view(const MatrixTask&)> source;
  // The update of these tasks has come to this rank's elements of them.
  std::function<void(Stage&, std::span<const size_t> tasks)> done;
};

struct PipelineTimes {
  double exchange_s = 0;  // Waiting.
  double orthogonalize_s = 0;
};

struct PipelineParts {
  std::span<const ParameterSpec> parameters;
  const ChunkPlan& chunks;
  const SwapPlan& units;
  Device& device;
  Communicator& communicator;
  BufferPool& gather_buffers;
  // Of the size of a gather buffer; as DeviceBuffersNeeded says.
  std::vector<std::unique_ptr<DeviceBuffer>> device_buffers;
};

class MuonPipeline {
 public:
  explicit MuonPipeline(PipelineParts parts);
  ~MuonPipeline();
  MuonPipeline(const MuonPipeline&) = delete;
  MuonPipeline& operator=(const MuonPipeline&) = delete;

  PipelineTimes Run(const PipelineStep& step, const StageContext& context);

 private:
  // A round between the start of its gather and the end of its scatter.
  struct Round {
    size_t index = 0;
    const Chunk* chunk = nullptr;  // This rank's, or null.
    int32_t buffer = -1;
    std::unique_ptr<StageStream::Held> held;
    std::unique_ptr<DeviceBuffer> device_buffer;
    PendingPtr exchange;
    std::vector<PendingPtr> computing;
  };

  // Units in the order in which they are worked on.
  std::vector<const Unit*> UnitOrder() const;
  // The next unit's stage; finishes scatters until it has room.
  std::unique_ptr<StageStream::Held> NextStage(const PipelineStep& step);
  void RunInPlace(const PipelineStep& step);
  void OrthogonalizeInPlace(const PipelineStep& step, const TaskUnit& unit,
                            const Stage& stage);
  // `tasks` are those of the jobs' matrices, in order.
  void RunJobs(std::span<const OrthogonalizeJob> jobs,
               const std::vector<size_t>& tasks);
  void RunRounds(const PipelineStep& step);
  void StartGather(const PipelineStep& step, size_t index);
  void Compute(Round& round);
  void ComputeInBuffer(const Round& round);
  void ComputeOnDevice(Round& round);
  void StartScatter();
  void FinishScatter(const PipelineStep& step);
  std::span<std::byte> BufferOf(const Round& round) const;

  std::span<const ParameterSpec> parameters_;
  const ChunkPlan& plan_;
  const SwapPlan& units_;
  Device& device_;
  Communicator& communicator_;
  BufferPool& pool_;
  PipelineTimes times_;
  // During Run.
  std::unique_ptr<StageStream> stages_;
  // In this order a round passes through them.
  std::deque<Round> gathering_;
  std::deque<Round> computing_;
  std::deque<Round> scattering_;
  // That no round has.
  std::vector<std::unique_ptr<DeviceBuffer>> device_buffers_;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_EXECUTOR_MUON_PIPELINE_H_
