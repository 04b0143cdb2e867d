// One step: prepare, decide, commit.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/executor/executor_impl.h"
#include "src/executor/stopwatch.h"
#include "src/store/agreement.h"

namespace muonstore {

namespace {

// The root of the largest float: no gradient beyond it has a square, and
// below it neither momentum nor moments can overflow.
constexpr double kLargestNorm = 1.8446743e19;

// No run has so many, and counting on from it is sound.
constexpr int64_t kMaxSteps = int64_t{1} << 62;

}  // namespace

double ClipFactor(double norm, double max_norm) {
  if (max_norm <= 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

bool OffloadExecutor::Impl::clips_updates() const {
  return store_.record.clipping == ClippingMode::kDeepSpeed &&
         options_.max_norm > 0;
}

Optimizer OffloadExecutor::Impl::OptimizerOf(int32_t flat_group) const {
  const FlatGroup& group =
      store_.partitioning.groups()[static_cast<size_t>(flat_group)];
  if (group.parameters.empty()) return Optimizer::kNone;
  return store_.parameters[static_cast<size_t>(group.parameters.front())]
      .optimizer;
}

int64_t OffloadExecutor::Impl::HyperParameterDigest() const {
  Digest digest;
  digest.Add(options_.max_norm)
      .Add(int64_t{options_.average_micro_batches})
      .Add(static_cast<int64_t>(store_.record.clipping))
      .Add(static_cast<int64_t>(store_.record.convention))
      .Add(store_.record.steps);
  for (const int64_t step : store_.record.group_steps) digest.Add(step);
  for (const GroupHyperParameters& group : options_.groups) {
    digest.Add(group.lr)
        .Add(group.weight_decay)
        .Add(group.momentum)
        .Add(int64_t{group.nesterov})
        .Add(static_cast<int64_t>(group.scale))
        .Add(group.beta1)
        .Add(group.beta2)
        .Add(group.eps)
        .Add(static_cast<int64_t>(group.adam_order))
        .Add(int64_t{group.decoupled_decay});
  }
  return digest.value();
}

void OffloadExecutor::Impl::RequireSoundHyperParameters() const {
  const auto require = [](bool sound, size_t group, const char* what,
                          double value) {
    if (sound) return;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("param group ", group, ": no update can be made with ",
                       what, " ", FormatNumber(value)));
  };
  for (size_t i = 0; i < options_.groups.size(); ++i) {
    const GroupHyperParameters& group = options_.groups[i];
    const auto is_float = [](double value) {
      return std::isfinite(static_cast<float>(value));
    };
    const auto is_decay = [](double value) { return value >= 0 && value < 1; };
    require(is_float(group.lr), i, "lr", group.lr);
    require(is_float(group.weight_decay), i, "weight_decay",
            group.weight_decay);
    require(group.momentum >= 0 && group.momentum <= 1, i, "momentum",
            group.momentum);
    require(is_decay(group.beta1), i, "beta1", group.beta1);
    require(is_decay(group.beta2), i, "beta2", group.beta2);
    // One that no float can hold would be 0, and 0 / 0 is no update.
    require(is_float(group.eps) && group.eps >= 0 &&
                (group.eps == 0 || static_cast<float>(group.eps) > 0),
            i, "eps", group.eps);
    require(store_.record.group_steps[i] >= 0 &&
                store_.record.group_steps[i] < kMaxSteps,
            i, "a step counter of",
            static_cast<double>(store_.record.group_steps[i]));
  }
  if (std::isnan(options_.max_norm)) {
    throw Error(ErrorCode::kInvalidArgument,
                "max_norm is not a number; 0 turns clipping off");
  }
}

int64_t OffloadExecutor::Impl::NewtonSchulzDigest() const {
  const NewtonSchulzOptions& options = options_.newton_schulz;
  Digest digest;
  digest.Add(static_cast<int64_t>(options.form))
      .Add(static_cast<int64_t>(options.precision))
      .Add(static_cast<int64_t>(options.normalization))
      .Add(options.coefficients.norm_factor);
  for (const QuinticStep& step : options.coefficients.steps) {
    digest.Add(step.a).Add(step.b).Add(step.c);
  }
  return digest.value();
}

float OffloadExecutor::Impl::AgreeOnDivisor(
    const StepOptions& options,
    std::optional<LeaseTable::Exclusive>& exclusive) {
  std::optional<int64_t> here;
  const std::optional<Error> error = Caught([&] {
    RequireOpen();
    exclusive.emplace(store_.leases, "Step");
    RequireSoundHyperParameters();
    if (!(options.loss_scale > 0) || !std::isfinite(options.loss_scale)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the loss scale is not a positive number",
                  {.found = FormatNumber(options.loss_scale)});
    }
    here = ledger_.RequireComplete();
  });
  RequireAgreement(
      *store_.communicator, "the step", error,
      Digest().Add(HyperParameterDigest()).Add(options.loss_scale).value());
  // Ranks without elements go along with the others.
  std::array<int64_t, 1> micro_batches = {here.value_or(0)};
  store_.communicator->AllReduce(micro_batches, ReduceOp::kMax);
  const double divisor =
      options.loss_scale *
      (options_.average_micro_batches
           ? static_cast<double>(std::max<int64_t>(1, micro_batches[0]))
           : 1.0);
  const std::optional<Error> differs = Caught([&] {
    if (here.has_value() && *here != micro_batches[0]) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "ranks have accumulated different numbers of micro-batches",
          {.expected = StrCat(micro_batches[0]), .found = StrCat(*here)});
    }
    if (static_cast<double>(static_cast<float>(divisor)) != divisor) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the loss scale times the number of micro-batches has no "
                  "exact float; use a power of two as the loss scale",
                  {.found = FormatNumber(divisor)});
    }
  });
  RequireAgreement(*store_.communicator, "the step's gradients", differs, 0);
  return static_cast<float>(divisor);
}

ExactSum OffloadExecutor::Impl::AllReduceSum(
    const ExactSum& sum, const std::optional<Error>& error) {
  const ExactSum::Words words = sum.words();
  constexpr size_t kFailed = std::tuple_size_v<ExactSum::Words>;
  constexpr size_t kWaits = kFailed + 1;
  std::array<int64_t, kWaits + 1> all = {};
  std::copy(words.begin(), words.end(), all.begin());
  all[kFailed] = error.has_value() ? 1 : 0;
  all[kWaits] = store_.segments->AwaitUpdates({}) ? 0 : 1;
  store_.communicator->AllReduce(all, ReduceOp::kSum);
  waits_for_save_ = all[kWaits] != 0;
  if (all[kFailed] != 0) {
    RequireAgreement(*store_.communicator, "reading gradients", error, 0);
  }
  ExactSum::Words total = {};
  std::copy_n(all.begin(), total.size(), total.begin());
  return ExactSum::FromWords(total);
}

ExactSum OffloadExecutor::Impl::SumGradients(bool found_overflow) {
  ExactSum sum;
  if (found_overflow) sum.AddNonFinite();
  const std::optional<Error> error = Caught([&] {
    ForEachStage(Stages(), kNormKinds, units_.norm_units,
                 [&](Stage& stage, const Unit& unit) {
                   sum.Merge(passes_->SumSquares(stage, SplitRuns(unit)));
                 });
  });
  return AllReduceSum(sum, error);
}

OffloadExecutor::Impl::Decision OffloadExecutor::Impl::Decide(
    const StepOptions& options, std::optional<LeaseTable::Exclusive>& exclusive,
    StepReport& report) {
  Decision decision{.divisor = AgreeOnDivisor(options, exclusive)};
  const ExactSum sum = SumGradients(options.found_overflow);
  report.num_nonfinite = sum.num_nonfinite();
  // The divisor comes out of the root, so that no loss scale changes a bit.
  report.norm = std::sqrt(sum.Round()) / double{decision.divisor};
  report.overflow = !sum.finite() || report.norm > kLargestNorm;
  if (store_.record.clipping == ClippingMode::kGradients && !report.overflow) {
    report.clip_factor = ClipFactor(report.norm, options_.max_norm);
    decision.clip_factor = static_cast<float>(report.clip_factor);
  }
  return decision;
}

std::vector<UpdateRun> OffloadExecutor::Impl::RunsOf(
    std::span<const size_t> tasks) const {
  std::vector<UpdateRun> runs;
  for (const size_t index : tasks) {
    const MatrixTask& task = plan_.tasks[index];
    const double scale =
        MuonScale(options_.groups[static_cast<size_t>(task.group)].scale,
                  task.rows, task.cols);
    for (const MatrixPiece& piece : task.pieces) {
      if (piece.rank != store_.communicator->rank()) continue;
      runs.push_back(
          {.at = RunOf(task, piece), .group = task.group, .scale = scale});
    }
  }
  return SplitRuns(runs);
}

std::vector<MomentumParams> OffloadExecutor::Impl::MomentumOf(
    const Decision& decision) const {
  std::vector<MomentumParams> params;
  for (const GroupHyperParameters& group : options_.groups) {
    params.push_back({.convention = store_.record.convention,
                      .mu = group.momentum,
                      .nesterov = group.nesterov,
                      .divisor = decision.divisor,
                      .clip_factor = decision.clip_factor});
  }
  return params;
}

void OffloadExecutor::Impl::UpdateAdam(float divisor, float clip_factor,
                                       StepReport& report) {
  const auto update = [&](Stage& stage, const Unit& unit) {
    const FlatGroup& flat_group =
        store_.partitioning
            .groups()[static_cast<size_t>(unit.front().flat_group)];
    const auto of = static_cast<size_t>(flat_group.group);
    const GroupHyperParameters& group = options_.groups[of];
    passes_->Adam(stage, unit,
                  {.lr = group.lr,
                   .beta1 = group.beta1,
                   .beta2 = group.beta2,
                   .eps = group.eps,
                   .weight_decay = group.weight_decay,
                   .step = store_.record.group_steps[of] + 1,
                   .order = group.adam_order,
                   .decoupled_decay = group.decoupled_decay,
                   .divisor = divisor,
                   .clip_factor = clip_factor});
  };
  const Stopwatch watch(report.update_s);
  ForEachStage(Stages(), kAdamKinds, units_.adam_units, update);
}

PipelineStep OffloadExecutor::Impl::MuonStep(
    std::span<const MomentumParams> momentum, StepReport& report) {
  PipelineStep step;
  step.prepare = [this, momentum, &report](Stage& stage,
                                           std::span<const size_t> tasks) {
    const Stopwatch watch(report.update_s);
    passes_->Momentum(stage, RunsOf(tasks), momentum);
  };
  step.source = [this](const MatrixTask& task) {
    return options_.groups[static_cast<size_t>(task.group)].nesterov
               ? kGradient
               : kMomentum;
  };
  return step;
}

void OffloadExecutor::Impl::RunPipeline(const PipelineStep& step,
                                        StepReport& report) {
  const PipelineTimes times = pipeline_->Run(step, Stages());
  report.exchange_s += times.exchange_s;
  report.orthogonalize_s += times.orthogonalize_s;
}

void OffloadExecutor::Impl::RunMuon(const Decision& decision,
                                    StepReport& report) {
  const std::vector<MomentumParams> momentum = MomentumOf(decision);
  PipelineStep step = MuonStep(momentum, report);
  step.kinds = kMuonKinds;
  step.done = [&](Stage& stage, std::span<const size_t> tasks) {
    const Stopwatch watch(report.update_s);
    passes_->ApplyUpdates(stage, RunsOf(tasks), options_.groups, 1);
  };
  RunPipeline(step, report);
}

// DeepSpeed's clipping: by the norm of all scaled updates and Adam gradients,
// for which the updates wait.
void OffloadExecutor::Impl::RunClipped(const Decision& decision,
                                       StepReport& report) {
  const std::vector<MomentumParams> momentum = MomentumOf(decision);
  ExactSum sum;
  PipelineStep step = MuonStep(momentum, report);
  step.kinds = kUpdateKinds;
  step.done = [&](Stage& stage, std::span<const size_t> tasks) {
    const Stopwatch watch(report.update_s);
    sum.Merge(passes_->SumSquares(stage, RunsOf(tasks)));
  };
  RunPipeline(step, report);
  AddAdamGradients(1.0F / decision.divisor, sum, report);
  report.norm = std::sqrt(AllReduceSum(sum, std::nullopt).Round());
  report.clip_factor = ClipFactor(report.norm, options_.max_norm);
  const auto factor = static_cast<float>(report.clip_factor);
  ApplyAll(factor, report);
  UpdateAdam(decision.divisor, factor, report);
}

void OffloadExecutor::Impl::AddAdamGradients(float factor, ExactSum& sum,
                                             StepReport& report) {
  const Stopwatch watch(report.update_s);
  ForEachStage(Stages(), kNormKinds, units_.norm_units,
               [&](Stage& stage, const Unit& unit) {
                 if (OptimizerOf(unit.front().flat_group) != Optimizer::kAdam) {
                   return;
                 }
                 std::vector<UpdateRun> runs = SplitRuns(unit);
                 for (UpdateRun& run : runs) run.scale = double{factor};
                 sum.Merge(passes_->SumSquares(stage, runs));
               });
}

void OffloadExecutor::Impl::ApplyAll(float factor, StepReport& report) {
  const Stopwatch watch(report.update_s);
  for (const auto* task_units : {&units_.in_place, &units_.rounds}) {
    std::vector<const Unit*> order;
    for (const TaskUnit& unit : *task_units) order.push_back(&unit.unit);
    StageStream stream(Stages(), kApplyKinds, std::move(order));
    for (const TaskUnit& unit : *task_units) {
      std::unique_ptr<StageStream::Held> held = stream.Next();
      passes_->ApplyUpdates(held->stage(), RunsOf(unit.tasks), options_.groups,
                            double{factor});
      stream.Finish(std::move(held));
    }
    stream.Drain();
  }
}

void OffloadExecutor::Impl::AdvanceCounters() {
  for (size_t i = 0; i < store_.parameters.size(); ++i) {
    for (const std::string_view kind : kStoreKinds) {
      if (kind != kGradient && HasKind(store_.parameters[i].optimizer, kind)) {
        store_.leases.Advance(static_cast<int32_t>(i), kind);
      }
    }
  }
  ++store_.record.steps;
  for (int64_t& step : store_.record.group_steps) ++step;
}

// A save that a rank waits for may take longer than peers wait for a rank: they
// hear of it.
void OffloadExecutor::Impl::AwaitSave() {
  std::array<int64_t, 1> waits = {waits_for_save_ ? 1 : 0};
  while (waits[0] != 0) {
    waits[0] =
        store_.segments->AwaitUpdates(std::chrono::milliseconds(100)) ? 0 : 1;
    store_.communicator->AllReduce(waits, ReduceOp::kMax);
  }
}

void OffloadExecutor::Impl::Commit(const Decision& decision,
                                   StepReport& report) {
  if (clips_updates()) {
    RunClipped(decision, report);
  } else {
    UpdateAdam(decision.divisor, decision.clip_factor, report);
    RunMuon(decision, report);
  }
  // Nobody goes on from a step that a rank did not finish.
  RequireAgreement(*store_.communicator, "finishing the step", std::nullopt, 0);
  store_.segments->CommitUpdates();
  AdvanceCounters();
}

StepReport OffloadExecutor::Impl::Step(const StepOptions& options) {
  StepReport report;
  swapped_ = {};
  Communicator& communicator = *store_.communicator;
  const uint64_t received = communicator.received_bytes();
  const DeviceUsage before = device_->usage();
  const double waited_s = store_.segments ? store_.segments->waited_s() : 0;
  {
    const Stopwatch total(report.total_s);
    std::optional<LeaseTable::Exclusive> exclusive;
    Decision decision;
    {
      const Stopwatch watch(report.prepare_s);
      decision = Decide(options, exclusive, report);
    }
    if (report.overflow) {
      ++store_.record.skipped_steps;
    } else {
      AwaitSave();
      try {
        Commit(decision, report);
      } catch (const std::exception& error) {
        store_.Poison(error.what());
        communicator.Abort(error.what());
        throw;
      }
      report.num_orthogonalized = static_cast<int64_t>(plan_.tasks.size());
      for (const MatrixTask& task : plan_.tasks) {
        report.num_orthogonalized_here +=
            task.owner == communicator.rank() ? 1 : 0;
      }
    }
    ledger_.Clear();
  }
  report.snapshot_wait_s = store_.segments->waited_s() - waited_s;
  report.received_bytes = communicator.received_bytes() - received;
  report.peak_gather_bytes = pool_->peak_bytes();
  const DeviceUsage used = device_->usage();
  report.device_in_bytes = used.in_bytes - before.in_bytes;
  report.device_out_bytes = used.out_bytes - before.out_bytes;
  report.peak_device_bytes = used.peak_bytes;
  report.swap_s = swapped_.wait_s;
  report.swap_read_bytes = swapped_.read_bytes;
  report.swap_written_bytes = swapped_.written_bytes;
  report.peak_swap_bytes = staging_->peak_bytes();
  return report;
}

}  // namespace muonstore
