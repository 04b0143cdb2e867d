#include "tests/executor/random_run.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <utility>

namespace muonstore::testutil {
namespace {

using Random = std::mt19937_64;
using Kind = oracle::MatrixRule::Kind;

constexpr int32_t kNumMuonGroups = 2;
constexpr int32_t kNumGroups = 4;

// In [low, high].
int64_t Pick(Random& random, int64_t low, int64_t high) {
  return low +
         static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

double Uniform(Random& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
}

bool Flip(Random& random) { return random() % 2 == 0; }

// About normal, mean 0.
float Value(Random& random) {
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += Uniform(random, -1, 1);
  return static_cast<float>(sum);
}

std::vector<float> Values(Random& random, int64_t count, DType dtype,
                          float factor) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = factor * Value(random);
  std::vector<std::byte> bytes(values.size() *
                               static_cast<size_t>(SizeBytes(dtype)));
  ConvertFromF32(values, dtype, bytes);
  ConvertToF32(dtype, bytes, values);
  return values;
}

struct MuonShape {
  Shape shape;
  MatrixLayout layout = MatrixLayout::Whole();
  oracle::MatrixRule rule;
};

MuonShape Packed(Random& random, int64_t cols) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < 3; ++i) sizes.push_back(Pick(random, 1, 12));
  const int64_t rows = sizes[0] + sizes[1] + sizes[2];
  return {Shape({rows, cols}),
          MatrixLayout::PackedRows(sizes),
          {.kind = Kind::kPackedRows, .sizes = sizes}};
}

MuonShape Interleaved(Random& random, int64_t cols) {
  const int64_t groups = Pick(random, 1, 3);
  const int64_t queries = Pick(random, 1, 3);
  const int64_t rows = groups * (queries + 2) * Pick(random, 1, 5);
  if (Flip(random)) {
    return {
        Shape({rows, cols}),
        MatrixLayout::InterleavedHeads(groups, queries),
        {.kind = Kind::kInterleavedHeads, .count = groups, .queries = queries}};
  }
  return {
      Shape({rows, cols}),
      MatrixLayout::InterleavedPacked(groups, queries),
      {.kind = Kind::kInterleavedPacked, .count = groups, .queries = queries}};
}

MuonShape RandomMuonShape(Random& random) {
  const int64_t cols = Pick(random, 1, 30);
  switch (Pick(random, 0, 6)) {
    case 0:
      return Packed(random, cols);
    case 1:
      return Interleaved(random, cols);
    case 2: {
      const int64_t heads = Pick(random, 1, 4);
      return {Shape({heads * Pick(random, 1, 8), cols}),
              MatrixLayout::PerHead(heads),
              {.kind = Kind::kPerHead, .count = heads}};
    }
    case 3:
      return {Shape({Pick(random, 1, 4), Pick(random, 1, 12), cols}),
              MatrixLayout::Experts(),
              {.kind = Kind::kExperts}};
    case 4:
      return {Shape({Pick(random, 1, 9), Pick(random, 1, 4), 3, 2}),
              MatrixLayout::ConvFolded()};
    default:
      return {Shape({Pick(random, 1, 40), cols})};
  }
}

Shape RandomAdamShape(Random& random) {
  switch (Pick(random, 0, 3)) {
    case 0:
      return Shape({Pick(random, 1, 60)});
    case 1:
      return Shape({1});
    default:
      return Shape({Pick(random, 1, 30), Pick(random, 1, 10)});
  }
}

DType RandomGradientDType(Random& random) {
  constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  return kDTypes[Pick(random, 0, 2)];
}

void AddParameter(Random& random, size_t index, RandomRun& run) {
  ParameterSpec spec{.name = "p" + std::to_string(index)};
  oracle::MatrixRule rule;
  const int64_t what = Pick(random, 0, 9);
  if (what < 6 || index == 0) {
    MuonShape muon = RandomMuonShape(random);
    spec.shape = muon.shape;
    spec.layout = muon.layout;
    spec.group = static_cast<int32_t>(Pick(random, 0, kNumMuonGroups - 1));
    rule = std::move(muon.rule);
  } else {
    spec.shape = RandomAdamShape(random);
    spec.optimizer = what == 9 ? Optimizer::kNone : Optimizer::kAdam;
    spec.group =
        static_cast<int32_t>(Pick(random, kNumMuonGroups, kNumGroups - 1));
  }
  constexpr DType kWeights[] = {DType::kBF16, DType::kF32, DType::kF16,
                                DType::kBF16};
  spec.weight_dtype = kWeights[spec.group];
  run.masters.push_back(
      Values(random, spec.shape.num_elements(), DType::kF32, 0.5F));
  run.gradient_dtypes.push_back(RandomGradientDType(random));
  run.rules.push_back(std::move(rule));
  run.model.push_back(std::move(spec));
}

GroupHyperParameters RandomGroup(Random& random) {
  return {
      .lr = Uniform(random, 0.001, 0.05),
      .weight_decay = Flip(random) ? Uniform(random, 0, 0.3) : 0,
      .momentum = Uniform(random, 0.5, 0.99),
      .nesterov = Flip(random),
      .scale =
          Flip(random) ? MuonScaleMode::kSpectral : MuonScaleMode::kMatchRms,
      .beta1 = Uniform(random, 0.5, 0.95),
      .beta2 = Uniform(random, 0.8, 0.999),
      .eps = Flip(random) ? 1e-8 : 1e-3,
      .adam_order = Flip(random) ? AdamOrder::kTorch : AdamOrder::kDeepSpeed,
      .decoupled_decay = Flip(random)};
}

void AddGradients(Random& random, RandomRun& run) {
  for (int64_t step = 0; step < run.num_steps; ++step) {
    std::vector<oracle::MicroBatch> batches;
    for (int64_t micro = 0; micro < run.micro_batches; ++micro) {
      oracle::MicroBatch batch;
      for (size_t i = 0; i < run.model.size(); ++i) {
        batch.push_back(Values(random, run.model[i].shape.num_elements(),
                               run.gradient_dtypes[i],
                               static_cast<float>(run.loss_scale)));
      }
      batches.push_back(std::move(batch));
    }
    if (step == run.overflow_step) batches.back()[0].back() = HUGE_VALF;
    run.gradients.push_back(std::move(batches));
  }
}

StateStore MakeStore(const RandomRun& run, const RunCut& cut,
                     std::shared_ptr<Communicator> communicator) {
  Partitioning partitioning =
      Partitioning::Build(run.model, {.stage = cut.stage,
                                      .num_ranks = communicator->size(),
                                      .sub_group_size = cut.sub_group_size});
  StoreOptions options{.communicator = std::move(communicator)};
  if (cut.pinned_tier) options.tiers.rest.tier = MakePinnedHostTier();
  if (!cut.nvme_directory.empty()) {
    options.tiers.rest = {
        .tier = MakeNvmeTier({.directory = cut.nvme_directory}),
        .resident_below_bytes = cut.resident_below_bytes};
  }
  return StateStore(run.model, std::move(partitioning), std::move(options));
}

// Of the largest matrix: what one gather needs at the least, twice.
uint64_t TightGatherBytes(const RandomRun& run) {
  int64_t largest = 1;
  for (const ParameterSpec& spec : run.model) {
    if (spec.optimizer != Optimizer::kMuon) continue;
    largest = std::max(largest, spec.shape.num_elements());
  }
  return static_cast<uint64_t>(largest) * sizeof(float) * 2;
}

void AccumulateRange(OffloadExecutor& executor, const RandomRun& run,
                     size_t parameter, std::span<const float> values,
                     ElementRange range) {
  const DType dtype = run.gradient_dtypes[parameter];
  std::vector<std::byte> bytes(static_cast<size_t>(range.size()) *
                               static_cast<size_t>(SizeBytes(dtype)));
  ConvertFromF32(values.subspan(static_cast<size_t>(range.begin),
                                static_cast<size_t>(range.size())),
                 dtype, bytes);
  executor.Accumulate(
      run.model[parameter].name,
      {.dtype = dtype, .data = bytes, .first_element = range.begin});
}

void AccumulateParameter(OffloadExecutor& executor, const RandomRun& run,
                         size_t parameter, std::span<const float> values,
                         Random* chunks) {
  const auto count = static_cast<int64_t>(values.size());
  std::vector<ElementRange> ranges;
  for (int64_t at = 0; at < count;) {
    const int64_t end =
        chunks == nullptr
            ? count
            : std::min(count, at + Pick(*chunks, 1, count / 3 + 1));
    ranges.push_back({at, end});
    at = end;
  }
  if (chunks != nullptr) std::shuffle(ranges.begin(), ranges.end(), *chunks);
  for (const ElementRange& range : ranges) {
    AccumulateRange(executor, run, parameter, values, range);
  }
}

void AccumulateAll(OffloadExecutor& executor, const RandomRun& run,
                   const oracle::MicroBatch& batch, Random* chunks) {
  for (size_t i = 0; i < run.model.size(); ++i) {
    if (run.model[i].optimizer == Optimizer::kNone) continue;
    AccumulateParameter(executor, run, i, batch[i], chunks);
  }
}

}  // namespace

RandomRun MakeRandomRun(uint64_t seed) {
  Random random(seed * 0x9E3779B97F4A7C15U + 1);
  RandomRun run;
  const int64_t num_parameters = Pick(random, 3, 9);
  for (int64_t i = 0; i < num_parameters; ++i) {
    AddParameter(random, static_cast<size_t>(i), run);
  }
  for (int32_t i = 0; i < kNumGroups; ++i) {
    run.options.groups.push_back(RandomGroup(random));
  }
  run.clipping = static_cast<ClippingMode>(Pick(random, 0, 2));
  run.convention = Flip(random) ? MomentumConvention::kLerp
                                : MomentumConvention::kAccumulate;
  run.options.max_norm = Uniform(random, 0.5, 30);
  run.options.average_micro_batches = Flip(random);
  run.options.newton_schulz.form = NewtonSchulzForm::kStandard;
  if (Flip(random)) {
    run.options.newton_schulz.coefficients =
        NewtonSchulzCoefficients::PolarExpress5();
  }
  run.loss_scale = Flip(random) ? 1 : 64;
  run.micro_batches = Pick(random, 1, 3);
  run.num_steps = Pick(random, 2, 4);
  run.overflow_step = Flip(random) ? Pick(random, 0, run.num_steps - 1) : -1;
  AddGradients(random, run);
  return run;
}

std::string RunCut::ToString() const {
  std::string text = "stage " + std::to_string(stage) + ", " +
                     std::to_string(num_threads) + " threads";
  if (!overlap) text += ", no overlap";
  if (pinned_tier) text += ", pinned tier";
  if (in_chunks) text += ", in chunks";
  if (tight_gathers) text += ", tight gathers";
  if (!nvme_directory.empty()) {
    text += swap_mode == SwapMode::kPipelined ? ", NVMe" : ", NVMe partitioned";
  }
  return text;
}

RunResult Execute(const RandomRun& run, const RunCut& cut,
                  std::shared_ptr<Communicator> communicator) {
  // Chunks differ between ranks on purpose.
  Random chunks(static_cast<uint64_t>(communicator->rank()) + 17);
  StateStore store = MakeStore(run, cut, std::move(communicator));
  for (size_t i = 0; i < run.model.size(); ++i) {
    if (run.model[i].optimizer == Optimizer::kNone) continue;
    store.Set(run.model[i].name, StateKind(kMaster), run.masters[i]);
  }
  store.record().clipping = run.clipping;
  store.record().convention = run.convention;
  ExecutorOptions options = run.options;
  options.groups.resize(store.record().group_steps.size());
  options.num_threads = cut.num_threads;
  options.overlap = cut.overlap;
  options.swap_mode = cut.swap_mode;
  if (cut.tight_gathers) options.max_gather_bytes = TightGatherBytes(run);
  OffloadExecutor executor(store, std::move(options));
  RunResult result;
  for (const std::vector<oracle::MicroBatch>& batches : run.gradients) {
    for (const oracle::MicroBatch& batch : batches) {
      AccumulateAll(executor, run, batch, cut.in_chunks ? &chunks : nullptr);
    }
    const StepReport report = executor.Step({.loss_scale = run.loss_scale});
    result.norms.push_back(report.overflow ? 0 : report.norm);
    result.clip_factors.push_back(report.clip_factor);
    result.overflows.push_back(report.overflow);
    result.num_orthogonalized += report.num_orthogonalized;
  }
  for (size_t i = 0; i < run.model.size(); ++i) {
    for (const StateKind& kind : store.kinds(static_cast<int32_t>(i))) {
      if (kind == kGradient) continue;
      GatheredTensor tensor = store.Gather(run.model[i].name, kind);
      result.state.emplace(tensor.key.ToString(), std::move(tensor.data));
    }
  }
  executor.Close();
  store.Close();
  return result;
}

OracleResult ExecuteOracle(const RandomRun& run) {
  std::vector<oracle::StepParameter> parameters;
  for (size_t i = 0; i < run.model.size(); ++i) {
    const ParameterSpec& spec = run.model[i];
    parameters.push_back(
        {.shape = spec.shape.dims(),
         .is_trained = spec.optimizer != Optimizer::kNone,
         .is_muon = spec.optimizer == Optimizer::kMuon,
         .group = static_cast<size_t>(spec.group),
         .matrices = run.rules[i],
         .master = {run.masters[i].begin(), run.masters[i].end()}});
  }
  std::vector<oracle::GroupRules> groups;
  for (const GroupHyperParameters& group : run.options.groups) {
    groups.push_back({.lr = group.lr,
                      .weight_decay = group.weight_decay,
                      .momentum = group.momentum,
                      .nesterov = group.nesterov,
                      .match_rms = group.scale == MuonScaleMode::kMatchRms,
                      .beta1 = group.beta1,
                      .beta2 = group.beta2,
                      .eps = group.eps,
                      .decoupled_decay = group.decoupled_decay});
  }
  oracle::StepRules rules{
      .accumulates = run.convention == MomentumConvention::kAccumulate,
      .clip = run.clipping == ClippingMode::kGradients
                  ? oracle::StepRules::Clip::kGradients
                  : oracle::StepRules::Clip::kOff,
      .max_norm = run.options.max_norm,
      .average_micro_batches = run.options.average_micro_batches};
  if (run.clipping == ClippingMode::kDeepSpeed) {
    rules.clip = oracle::StepRules::Clip::kDeepSpeed;
  }
  if (run.options.newton_schulz.coefficients.name !=
      NewtonSchulzCoefficients::Jordan5().name) {
    rules.iteration = oracle::PolarExpress5();
  }
  rules.iteration.eps = 0;  // Scale-free, the default.
  oracle::StepOracle oracle(std::move(parameters), std::move(groups),
                            std::move(rules));
  OracleResult result;
  for (const std::vector<oracle::MicroBatch>& batches : run.gradients) {
    result.steps.push_back(oracle.Step(batches, run.loss_scale));
  }
  result.parameters = oracle.parameters();
  return result;
}

int64_t NumMatrices(const RandomRun& run) {
  size_t count = 0;
  for (size_t i = 0; i < run.model.size(); ++i) {
    if (run.model[i].optimizer != Optimizer::kMuon) continue;
    count += oracle::MatricesOf(run.model[i].shape.dims(), run.rules[i]).size();
  }
  return static_cast<int64_t>(count);
}

}  // namespace muonstore::testutil
