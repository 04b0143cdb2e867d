#include "src/executor/muon_pipeline.h"

#include <utility>

#include "src/executor/stopwatch.h"

namespace muonstore {

MuonPipeline::MuonPipeline(const ChunkPlan& plan, Device& device,
                           Communicator& communicator, GatherPool& pool)
    : plan_(plan), device_(device), communicator_(communicator), pool_(pool) {}

MuonPipeline::~MuonPipeline() = default;

PipelineTimes MuonPipeline::Run(const PipelineStep& step) {
  times_ = {};
  try {
    if (plan_.num_rounds > 0 && plan_.overlap) StartGather(step, 0);
    RunInPlace(step);
    RunRounds(step);
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
    throw;
  }
  return times_;
}

void MuonPipeline::RunInPlace(const PipelineStep& step) {
  const auto& tasks = plan_.in_place[static_cast<size_t>(communicator_.rank())];
  if (tasks.empty()) return;
  std::vector<OrthogonalizeJob> jobs;
  for (const size_t index : tasks) {
    const MatrixTask& task = plan_.tasks[index];
    const int64_t offset = task.pieces.front().segment_offset;
    jobs.push_back({.in = {step.source(task).data() + offset, 1, task.rows,
                           task.cols, task.num_elements(), task.cols},
                    .out = {step.dest(task).data() + offset, 1, task.rows,
                            task.cols, task.num_elements(), task.cols}});
  }
  {
    const Stopwatch watch(times_.orthogonalize_s);
    device_.OrthogonalizeInPlace(jobs);
  }
  step.done(tasks);
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
    if (k >= lag) StartScatter(step);
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
  if (round.chunk != nullptr) round.buffer = pool_.Acquire();
  round.exchange = communicator_.Exchange(PlanGather(
      plan_, index, communicator_.rank(), step.source, BufferOf(round)));
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
  device_.OrthogonalizeInPlace({&job, 1});
}

void MuonPipeline::ComputeOnDevice(Round& round) {
  const Chunk& chunk = *round.chunk;
  if (!device_buffers_.empty()) {
    round.device_buffer = std::move(device_buffers_.back());
    device_buffers_.pop_back();
  } else {
    round.device_buffer = device_.Allocate(plan_.buffer_bytes);
  }
  const std::span<std::byte> buffer = BufferOf(round);
  round.computing.push_back(device_.CopyIn(*round.device_buffer, buffer));
  round.computing.push_back(device_.Orthogonalize(
      *round.device_buffer, {.batch = static_cast<int64_t>(chunk.tasks.size()),
                             .rows = chunk.rows,
                             .cols = chunk.cols}));
  round.computing.push_back(device_.CopyOut(buffer, *round.device_buffer));
}

void MuonPipeline::StartScatter(const PipelineStep& step) {
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
  round.exchange = communicator_.Exchange(PlanScatter(
      plan_, round.index, communicator_.rank(), step.dest, BufferOf(round)));
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
  step.done(TasksOfRound(round.index));
}

std::vector<size_t> MuonPipeline::TasksOfRound(size_t round) const {
  std::vector<size_t> tasks;
  for (size_t rank = 0; rank < plan_.chunks.size(); ++rank) {
    const Chunk* chunk = plan_.chunk(static_cast<int32_t>(rank), round);
    if (chunk != nullptr) {
      tasks.insert(tasks.end(), chunk->tasks.begin(), chunk->tasks.end());
    }
  }
  return tasks;
}

}  // namespace muonstore
