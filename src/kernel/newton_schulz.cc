#include "muonstore/newton_schulz.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/kernel/aligned_buffer.h"
#include "src/kernel/newton_schulz_input.h"
#include "src/kernel/newton_schulz_iteration.h"

namespace muonstore {
namespace {

// Matrices up to this smaller side fit a core's caches: one a thread.
constexpr int64_t kMaxSmallSide = 512;
// Below this side waiting for each other costs a team more than it gains.
constexpr int64_t kMinTeamSide = 128;

}  // namespace

class Orthogonalizer::Impl {
 public:
  Impl(const NewtonSchulzOptions& options, ThreadPool& pool)
      : options_(options),
        pool_(pool),
        gemm_(MakeGemm()),
        workers_(static_cast<size_t>(pool.num_threads())) {}

  void Run(std::span<const OrthogonalizeJob> jobs);

  int64_t WorkspaceBytes(int64_t rows, int64_t cols) const {
    if (rows == 0 || cols == 0) {
      return 0;
    }
    const NewtonSchulzPlan plan = PlanOf(rows, cols);
    const int64_t shared = SharedBytes(plan);
    // Small matrices run either way, by how many there are.
    const int64_t alone = plan.n <= kMaxSmallSide ? shared : 0;
    const int64_t each =
        AlignedBuffer::RoundedBytes(ScratchBytes(plan) + alone);
    return AlignedBuffer::RoundedBytes(shared) +
           static_cast<int64_t>(workers_.size()) * each;
  }

  int64_t workspace_bytes() const {
    int64_t bytes = shared_.size_bytes();
    for (const AlignedBuffer& worker : workers_) {
      bytes += worker.size_bytes();
    }
    return bytes;
  }

  void ReleaseWorkspace() {
    shared_.Release();
    for (AlignedBuffer& worker : workers_) {
      worker.Release();
    }
  }

 private:
  NewtonSchulzPlan PlanOf(int64_t rows, int64_t cols) const {
    return MakePlan(options_, rows, cols, gemm_->bf16_rate());
  }
  void Iterate(const NewtonSchulzPlan& plan, const NewtonSchulzMatrix& matrix,
               const NewtonSchulzWork& work, Team& team);
  void RunByTeam(const NewtonSchulzMatrix& matrix);
  void RunAlone(const NewtonSchulzMatrix& matrix, int worker);

  const NewtonSchulzOptions& options_;
  ThreadPool& pool_;
  std::unique_ptr<Gemm> gemm_;
  AlignedBuffer shared_;
  std::vector<AlignedBuffer> workers_;
};

void Orthogonalizer::Impl::Iterate(const NewtonSchulzPlan& plan,
                                   const NewtonSchulzMatrix& matrix,
                                   const NewtonSchulzWork& work, Team& team) {
  const auto run = plan.bf16 ? RunBF16NewtonSchulz : RunF32NewtonSchulz;
  run({plan, matrix, work, *gemm_, team}, options_.coefficients.steps);
}

void Orthogonalizer::Impl::RunByTeam(const NewtonSchulzMatrix& matrix) {
  const NewtonSchulzPlan plan = PlanOf(matrix.in.rows, matrix.in.cols);
  shared_.Reserve(SharedBytes(plan));
  for (AlignedBuffer& worker : workers_) {
    worker.Reserve(ScratchBytes(plan));
  }
  const NewtonSchulzWork work = {
      .buffers = CarveBuffers(plan, shared_.data()),
      .scratch = [this](int worker) {
        return workers_[static_cast<size_t>(worker)].data();
      }};
  Team team = Team::Of(pool_);
  Iterate(plan, matrix, work, team);
}

void Orthogonalizer::Impl::RunAlone(const NewtonSchulzMatrix& matrix,
                                    int worker) {
  const NewtonSchulzPlan plan = PlanOf(matrix.in.rows, matrix.in.cols);
  AlignedBuffer& buffer = workers_[static_cast<size_t>(worker)];
  buffer.Reserve(SharedBytes(plan) + ScratchBytes(plan));
  const NewtonSchulzWork work = {.buffers = CarveBuffers(plan, buffer.data()),
                                 .scratch = [&](int /*worker*/) {
                                   return buffer.data() + SharedBytes(plan);
                                 }};
  Team team = Team::Alone(worker);
  Iterate(plan, matrix, work, team);
}

void Orthogonalizer::Impl::Run(std::span<const OrthogonalizeJob> jobs) {
  std::vector<NewtonSchulzMatrix> matrices =
      NormalizedMatrices(options_, jobs, pool_);
  const auto side = [](const NewtonSchulzMatrix& matrix) {
    return std::min(matrix.in.rows, matrix.in.cols);
  };
  // The largest first, so that no thread is left alone with one at the end.
  std::stable_sort(matrices.begin(), matrices.end(),
                   [&](const auto& left, const auto& right) {
                     return side(left) > side(right);
                   });
  const auto num_threads = static_cast<size_t>(pool_.num_threads());
  size_t next = 0;
  for (; next < matrices.size(); ++next) {
    const bool too_few = matrices.size() - next < num_threads &&
                         side(matrices[next]) >= kMinTeamSide;
    if (side(matrices[next]) <= kMaxSmallSide && !too_few) {
      break;
    }
    RunByTeam(matrices[next]);
  }
  Team all = Team::Of(pool_);
  all.Run(static_cast<int64_t>(matrices.size() - next),
          [&](int64_t task, int worker) {
            RunAlone(matrices[next + static_cast<size_t>(task)], worker);
          });
}

Orthogonalizer::Orthogonalizer(NewtonSchulzOptions options, ThreadPool& pool)
    : options_(std::move(options)) {
  CheckOptions(options_);
  impl_ = std::make_unique<Impl>(options_, pool);
}

Orthogonalizer::~Orthogonalizer() = default;

void Orthogonalizer::Run(std::span<const OrthogonalizeJob> jobs) {
  impl_->Run(jobs);
}

int64_t Orthogonalizer::WorkspaceBytes(int64_t rows, int64_t cols) const {
  return impl_->WorkspaceBytes(rows, cols);
}

int64_t Orthogonalizer::workspace_bytes() const {
  return impl_->workspace_bytes();
}

void Orthogonalizer::ReleaseWorkspace() { impl_->ReleaseWorkspace(); }

void Orthogonalize(const StridedMatrices<const float>& in,
                   const StridedMatrices<float>& out,
                   const NewtonSchulzOptions& options, ThreadPool& pool) {
  const OrthogonalizeJob job = {.in = in, .out = out};
  Orthogonalizer(options, pool).Run({&job, 1});
}

}  // namespace muonstore
