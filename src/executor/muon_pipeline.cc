#include "src/executor/muon_pipeline.h"

#include <utility>

#include "muonstore/error.h"
#include "src/executor/not_finite.h"
#include "src/executor/stopwatch.h"

namespace muonstore {

MuonPipeline::MuonPipeline(PipelineParts parts)
    : parameters_(parts.parameters),
      plan_(parts.chunks),
      units_(parts.units),
      device_(parts.device),
      communicator_(parts.communicator),
      pool_(parts.gather_buffers),
      device_buffers_(std::move(parts.device_buffers)) {}

MuonPipeline::~MuonPipeline() = default;

PipelineTimes MuonPipeline::Run(const PipelineStep& step,
                                const StageContext& context) {
  times_ = {};
  stages_ = std::make_unique<StageStream>(context, step.kinds, UnitOrder());
  try {
    if (plan_.num_rounds > 0 && plan_.overlap) StartGather(step, 0);
    RunInPlace(step);
    RunRounds(step);
    stages_->Drain();
  } catch (...) {
    // Copies under way read and write memory that is about to go.
    gathering_.clear();
    try {
      device_.Drain();
    } catch (const std::exception&) {
      // The first error says more.
    }
    computing_.clear();
    scattering_.clear();
    stages_.reset();
    throw;
  }
  stages_.reset();
  return times_;
}

std::vector<const Unit*> MuonPipeline::UnitOrder() const {
  std::vector<const Unit*> order;
  const size_t early = plan_.overlap && plan_.num_rounds > 0 ? 1 : 0;
  if (early > 0) order.push_back(&units_.rounds.front().unit);
  for (const TaskUnit& unit : units_.in_place) order.push_back(&unit.unit);
  for (size_t i = early; i < units_.rounds.size(); ++i) {
    order.push_back(&units_.rounds[i].unit);
  }
  return order;
}

std::unique_ptr<StageStream::Held> MuonPipeline::NextStage(
    const PipelineStep& step) {
  while (!stages_->HasRoom() && !scattering_.empty()) FinishScatter(step);
  return stages_->Next();
}

void MuonPipeline::RunInPlace(const PipelineStep& step) {
  for (const TaskUnit& unit : units_.in_place) {
    std::unique_ptr<StageStream::Held> held = NextStage(step);
    step.prepare(held->stage(), unit.tasks);
    {
      const Stopwatch watch(times_.orthogonalize_s);
      OrthogonalizeInPlace(step, unit, held->stage());
    }
    step.done(held->stage(), unit.tasks);
    stages_->Finish(std::move(held));
  }
}

void MuonPipeline::OrthogonalizeInPlace(const PipelineStep& step,
                                        const TaskUnit& unit,
                                        const Stage& stage) {
  std::vector<OrthogonalizeJob> jobs;
  for (const size_t index : unit.tasks) {
    const MatrixTask& task = plan_.tasks[index];
    const SegmentRun run = RunOf(task, task.pieces.front());
    const auto matrix = [&](std::string_view kind) {
      return stage.f32(kind, run).data();
    };
    jobs.push_back({.in = {matrix(step.source(task)), 1, task.rows, task.cols,
                           task.num_elements(), task.cols},
                    .out = {matrix(kGradient), 1, task.rows, task.cols,
                            task.num_elements(), task.cols}});
  }
  RunJobs(jobs, unit.tasks);
}

void MuonPipeline::RunJobs(std::span<const OrthogonalizeJob> jobs,
                           const std::vector<size_t>& tasks) {
  try {
    device_.OrthogonalizeInPlace(jobs);
  } catch (const Error&) {
    if (const auto found = FirstNotFinite(jobs)) {
      const MatrixTask& task = plan_.tasks[tasks[*found]];
      ThrowNotFiniteMomentum(
          parameters_[static_cast<size_t>(task.parameter)].name);
    }
    throw;
  }
}

void MuonPipeline::RunRounds(const PipelineStep& step) {
  // An accelerator computes round k while round k - 1 is scattered.
  const size_t lag = plan_.overlap && !device_.works_in_host_memory() ? 1 : 0;
  for (size_t k = 0; k < plan_.num_rounds + lag; ++k) {
    if (!plan_.overlap) {
      StartGather(step, k);
    } else if (k + 1 < plan_.num_rounds) {
      while (!scattering_.empty() && pool_.num_free() == 0) {
        FinishScatter(step);
      }
      StartGather(step, k + 1);
    }
    if (k < plan_.num_rounds) {
      Round round = std::move(gathering_.front());
      gathering_.pop_front();
      {
        const Stopwatch watch(times_.exchange_s);
        round.exchange->Wait();
      }
      Compute(round);
      computing_.push_back(std::move(round));
    }
    if (k >= lag) StartScatter();
    while (scattering_.size() > (plan_.overlap ? 1U : 0U)) FinishScatter(step);
  }
  while (!scattering_.empty()) FinishScatter(step);
}

std::span<std::byte> MuonPipeline::BufferOf(const Round& round) const {
  if (round.chunk == nullptr) return {};
  return pool_.bytes(round.buffer).first(round.chunk->bytes());
}

void MuonPipeline::StartGather(const PipelineStep& step, size_t index) {
  Round round{.index = index,
              .chunk = plan_.chunk(communicator_.rank(), index)};
  round.held = NextStage(step);
  const Stage& stage = round.held->stage();
  step.prepare(round.held->stage(), units_.rounds[index].tasks);
  if (round.chunk != nullptr) round.buffer = pool_.Acquire();
  const MemoryOf source = [&](const MatrixTask& task,
                              const MatrixPiece& piece) {
    return stage.f32(step.source(task), RunOf(task, piece));
  };
  round.exchange = communicator_.Exchange(
      PlanGather(plan_, index, communicator_.rank(), source, BufferOf(round)));
  gathering_.push_back(std::move(round));
}

void MuonPipeline::Compute(Round& round) {
  if (round.chunk == nullptr) return;
  const Stopwatch watch(times_.orthogonalize_s);
  if (device_.works_in_host_memory()) {
    ComputeInBuffer(round);
  } else {
    ComputeOnDevice(round);
  }
}

void MuonPipeline::ComputeInBuffer(const Round& round) {
  const Chunk& chunk = *round.chunk;
  auto* data = reinterpret_cast<float*>(BufferOf(round).data());
  const auto batch = static_cast<int64_t>(chunk.tasks.size());
  const OrthogonalizeJob job = {.in = {data, batch, chunk.rows, chunk.cols,
                                       chunk.matrix_elements(), chunk.cols},
                                .out = {data, batch, chunk.rows, chunk.cols,
                                        chunk.matrix_elements(), chunk.cols}};
  RunJobs({&job, 1}, chunk.tasks);
}

void MuonPipeline::ComputeOnDevice(Round& round) {
  const Chunk& chunk = *round.chunk;
  round.device_buffer = std::move(device_buffers_.back());
  device_buffers_.pop_back();
  const std::span<std::byte> buffer = BufferOf(round);
  round.computing.push_back(device_.CopyIn(*round.device_buffer, buffer));
  round.computing.push_back(device_.Orthogonalize(
      *round.device_buffer, {.batch = static_cast<int64_t>(chunk.tasks.size()),
                             .rows = chunk.rows,
                             .cols = chunk.cols}));
  round.computing.push_back(device_.CopyOut(buffer, *round.device_buffer));
}

void MuonPipeline::StartScatter() {
  Round round = std::move(computing_.front());
  computing_.pop_front();
  {
    const Stopwatch watch(times_.orthogonalize_s);
    for (const PendingPtr& pending : round.computing) pending->Wait();
    round.computing.clear();
  }
  if (round.device_buffer != nullptr) {
    device_buffers_.push_back(std::move(round.device_buffer));
  }
  const Stage& stage = round.held->stage();
  const MemoryOf dest = [&](const MatrixTask& task, const MatrixPiece& piece) {
    return stage.f32(kGradient, RunOf(task, piece));
  };
  round.exchange = communicator_.Exchange(PlanScatter(
      plan_, round.index, communicator_.rank(), dest, BufferOf(round)));
  scattering_.push_back(std::move(round));
}

void MuonPipeline::FinishScatter(const PipelineStep& step) {
  Round round = std::move(scattering_.front());
  scattering_.pop_front();
  {
    const Stopwatch watch(times_.exchange_s);
    round.exchange->Wait();
  }
  if (round.buffer >= 0) pool_.Return(round.buffer);
  step.done(round.held->stage(), units_.rounds[round.index].tasks);
  stages_->Finish(std::move(round.held));
}

}  // namespace muonstore
