#include "tests/oracle/step_oracle.h"

#include <algorithm>
#include <cmath>

namespace muonstore::oracle {
namespace {

bool AllFinite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float v) { return std::isfinite(v); });
}

double SquareSum(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return sum;
}

void Scale(std::vector<double>& values, double factor) {
  for (double& v : values) v *= factor;
}

// Packed Q, K, V taken for interleaved heads, and the other way round.
MatrixRule Swapped(const MatrixRule& rule, int64_t rows) {
  if (rule.kind == MatrixRule::Kind::kPackedRows) {
    return {.kind = MatrixRule::Kind::kInterleavedPacked, .count = rule.count};
  }
  return {.kind = MatrixRule::Kind::kPackedRows,
          .sizes = {rows / 3, rows / 3, rows - rows / 3 * 2}};
}

std::vector<double> Pick(const std::vector<double>& from,
                         const IndexedMatrix& matrix) {
  std::vector<double> values;
  values.reserve(matrix.elements.size());
  for (const size_t element : matrix.elements) values.push_back(from[element]);
  return values;
}

}  // namespace

StepOracle::StepOracle(std::vector<StepParameter> parameters,
                       std::vector<GroupRules> groups, StepRules rules,
                       Mistake mistake)
    : parameters_(std::move(parameters)),
      groups_(std::move(groups)),
      rules_(std::move(rules)),
      mistake_(mistake),
      updates_(parameters_.size()) {
  for (StepParameter& p : parameters_) {
    for (Values* state : {&p.momentum, &p.exp_avg, &p.exp_avg_sq}) {
      state->resize(p.master.size());
    }
  }
  std::vector<std::array<double, 3>>& steps = rules_.iteration.steps;
  if (Is(Mistake::kFourIterations)) steps.pop_back();
  if (Is(Mistake::kIterationsReversed))
    std::reverse(steps.begin(), steps.end());
  if (Is(Mistake::kNoNormFactor)) rules_.iteration.norm_factor = 1;
}

StepResult StepOracle::Step(const std::vector<MicroBatch>& micro_batches,
                            double loss_scale) {
  if (!IsFinite(micro_batches)) {
    Skip();
    return {.skipped = true};
  }
  StepResult result;
  Average(micro_batches, loss_scale);
  if (rules_.clip == StepRules::Clip::kGradients &&
      !Is(Mistake::kClipAfterMomentum)) {
    ClipGradients(result);
  }
  const double raw_norm = std::sqrt(NormOf(true, true));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const StepParameter& p = parameters_[i];
    if (!p.is_trained || !p.is_muon) continue;
    UpdateMomentum(i);
    Orthogonalize(i);
  }
  if (Is(Mistake::kClipAfterMomentum) &&
      rules_.clip == StepRules::Clip::kGradients) {
    for (Values& update : updates_) Scale(update, ClipFactor(raw_norm));
  }
  if (rules_.clip == StepRules::Clip::kDeepSpeed) {
    result.norm = raw_norm;  // For the mistake.
    ClipUpdates(result);
  }
  last_lr_.resize(groups_.size(), -1);
  for (GroupRules& group : groups_) ++group.adam_steps;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const size_t g = parameters_[i].group;
    const bool is_late = Is(Mistake::kLearningRateLate) && last_lr_[g] >= 0;
    const double lr = is_late ? last_lr_[g] : groups_[g].lr;
    if (!parameters_[i].is_trained) continue;
    parameters_[i].is_muon ? ApplyMuon(i, lr) : ApplyAdam(i, lr);
  }
  for (size_t g = 0; g < groups_.size(); ++g) last_lr_[g] = groups_[g].lr;
  return result;
}

bool StepOracle::IsFinite(const std::vector<MicroBatch>& micro_batches) const {
  for (const MicroBatch& batch : micro_batches) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const StepParameter& p = parameters_[i];
      const bool is_seen = p.is_muon || !Is(Mistake::kOverflowOfMuonOnly);
      if (p.is_trained && is_seen && !AllFinite(batch[i])) return false;
    }
  }
  return true;
}

void StepOracle::Skip() {
  if (Is(Mistake::kAdamCountsSkippedSteps)) {
    for (GroupRules& group : groups_) ++group.adam_steps;
  }
  if (Is(Mistake::kMomentumDecaysOnSkip)) {
    for (StepParameter& p : parameters_) {
      Scale(p.momentum, groups_[p.group].momentum);
    }
  }
}

void StepOracle::Average(const std::vector<MicroBatch>& micro_batches,
                         double loss_scale) {
  const size_t first =
      Is(Mistake::kLastMicroBatchOnly) ? micro_batches.size() - 1 : 0;
  const auto count = static_cast<double>(micro_batches.size() - first);
  const bool averages =
      rules_.average_micro_batches && !Is(Mistake::kMicroBatchesSummed);
  const double divisor = (averages ? count : 1.0) *
                         (Is(Mistake::kLossScaleKept) ? 1.0 : loss_scale);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    updates_[i].assign(parameters_[i].master.size(), 0.0);
    if (!parameters_[i].is_trained) continue;
    for (size_t m = first; m < micro_batches.size(); ++m) {
      for (size_t j = 0; j < updates_[i].size(); ++j) {
        updates_[i][j] += static_cast<double>(micro_batches[m][i][j]);
      }
    }
    for (double& v : updates_[i]) v /= divisor;
  }
}

// The sum of squares of what is in updates_.
double StepOracle::NormOf(bool of_muon, bool of_adam) const {
  double sum = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].is_muon ? of_muon : of_adam) {
      sum += SquareSum(updates_[i]);
    }
  }
  return sum;
}

double StepOracle::ClipFactor(double norm) const {
  return std::min(1.0, rules_.max_norm / (norm + 1e-6));
}

void StepOracle::ClipGradients(StepResult& result) {
  result.norm = std::sqrt(
      NormOf(!Is(Mistake::kNormOfAdamOnly), !Is(Mistake::kNormOfMuonOnly)));
  if (Is(Mistake::kNoClip)) return;
  result.clip_factor = ClipFactor(result.norm);
  for (Values& update : updates_) {
    const double factor = Is(Mistake::kClipPerTensor)
                              ? ClipFactor(std::sqrt(SquareSum(update)))
                              : result.clip_factor;
    Scale(update, factor);
  }
}

void StepOracle::ClipUpdates(StepResult& result) {
  if (Is(Mistake::kNoClip)) return;
  if (!Is(Mistake::kDeepSpeedNormOfGradients)) {
    result.norm = std::sqrt(
        NormOf(!Is(Mistake::kNormOfAdamOnly), !Is(Mistake::kNormOfMuonOnly)));
  }
  result.clip_factor = ClipFactor(result.norm);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].is_muon || !Is(Mistake::kDeepSpeedClipsMuonOnly)) {
      Scale(updates_[i], result.clip_factor);
    }
  }
}

void StepOracle::UpdateMomentum(size_t index) {
  StepParameter& p = parameters_[index];
  const GroupRules& group = groups_[p.group];
  const double mu = group.momentum;
  const bool accumulates = rules_.accumulates != Is(Mistake::kMomentumForm);
  const bool nesterov = group.nesterov != Is(Mistake::kNesterovFlipped);
  for (size_t i = 0; i < p.master.size(); ++i) {
    double g = updates_[index][i];
    if (Is(Mistake::kDecayInGradient)) g += group.weight_decay * p.master[i];
    double& m = p.momentum[i];
    m = accumulates ? mu * m + g : m + (1 - mu) * (g - m);
    const double blend = accumulates ? g + mu * m : g + mu * (m - g);
    updates_[index][i] = nesterov ? blend : m;
  }
}

std::vector<IndexedMatrix> StepOracle::MatricesWithMistakes(
    const StepParameter& p) const {
  const size_t rank = p.shape.size();
  const bool is_conv = rank > 2 && p.matrices.kind == MatrixRule::Kind::kWhole;
  const bool is_experts = p.matrices.kind == MatrixRule::Kind::kExperts;
  if (is_conv && Is(Mistake::kConvUnfolded)) {
    // Each kernel a matrix.
    const int64_t kernels = p.shape[0] * p.shape[1];
    return MatricesOf({kernels, p.shape[2], rank > 3 ? p.shape[3] : 1},
                      {.kind = MatrixRule::Kind::kExperts});
  }
  if (is_experts && Is(Mistake::kExpertsAsOne)) {
    return MatricesOf({p.shape[0] * p.shape[1], p.shape[2]}, {});
  }
  const bool is_split =
      rank == 2 && p.matrices.kind != MatrixRule::Kind::kWhole;
  if (is_split && Is(Mistake::kLayoutIgnored)) return MatricesOf(p.shape, {});
  if (is_split && Is(Mistake::kLayoutSwapped)) {
    return MatricesOf(p.shape, Swapped(p.matrices, p.shape[0]));
  }
  return MatricesOf(p.shape, p.matrices);
}

double StepOracle::ScaleOf(const StepParameter& p, double rows,
                           double cols) const {
  if (Is(Mistake::kScaleInverse)) std::swap(rows, cols);
  if (!groups_[p.group].match_rms) {
    return std::sqrt(Is(Mistake::kScaleUnclamped) ? rows / cols
                                                  : std::max(1.0, rows / cols));
  }
  return 0.2 * std::sqrt(Is(Mistake::kRmsOfSmallerSide) ? std::min(rows, cols)
                                                        : std::max(rows, cols));
}

double StepOracle::ScaleOfMatrix(const StepParameter& p,
                                 const IndexedMatrix& matrix) const {
  auto rows = static_cast<double>(matrix.rows);
  auto cols = static_cast<double>(matrix.cols);
  const auto dim = [&](size_t axis) {
    return static_cast<double>(p.shape[axis]);
  };
  const bool is_whole = p.matrices.kind == MatrixRule::Kind::kWhole;
  if (is_whole && p.shape.size() == 4 && Is(Mistake::kConvScaleOfKernel)) {
    rows = dim(2);
    cols = dim(3);
  }
  if (p.matrices.kind == MatrixRule::Kind::kExperts &&
      Is(Mistake::kExpertsAsOne)) {
    rows = dim(1);
  }
  if (p.shape.size() == 2 && Is(Mistake::kScaleOfWholeTensor)) rows = dim(0);
  return ScaleOf(p, rows, cols);
}

void StepOracle::Orthogonalize(size_t index) {
  if (Is(Mistake::kElementWise)) return;
  const StepParameter& p = parameters_[index];
  const Values momentum = updates_[index];
  for (const IndexedMatrix& matrix : MatricesWithMistakes(p)) {
    const Values result = oracle::Orthogonalize(
        Pick(momentum, matrix), matrix.rows, matrix.cols, rules_.iteration);
    const double scale = ScaleOfMatrix(p, matrix);
    for (size_t i = 0; i < result.size(); ++i) {
      updates_[index][matrix.elements[i]] = result[i] * scale;
    }
  }
}

double StepOracle::DecayScale(const StepParameter& p) const {
  if (!Is(Mistake::kDecayScaled) || p.master.empty()) return 1;
  const size_t rank = p.shape.size();
  const bool is_experts = p.matrices.kind == MatrixRule::Kind::kExperts;
  const auto rows = static_cast<double>(p.shape[is_experts ? rank - 2 : 0]);
  const double cols = is_experts ? static_cast<double>(p.shape[rank - 1])
                                 : static_cast<double>(p.master.size()) / rows;
  return ScaleOf(p, rows, cols);
}

void StepOracle::ApplyMuon(size_t index, double lr) {
  StepParameter& p = parameters_[index];
  const double decay = 1 - lr * DecayScale(p) * groups_[p.group].weight_decay;
  for (size_t i = 0; i < p.master.size(); ++i) {
    double& w = p.master[i];
    if (Is(Mistake::kDecayAfter)) {
      w = (w - lr * updates_[index][i]) * decay;
      continue;
    }
    if (!Is(Mistake::kDecayInGradient)) w *= decay;
    w -= lr * updates_[index][i];
  }
}

void StepOracle::ApplyAdam(size_t index, double lr) {
  StepParameter& p = parameters_[index];
  const GroupRules& group = groups_[p.group];
  const bool decoupled =
      group.decoupled_decay && !Is(Mistake::kDecayInGradient);
  const double beta2 = Is(Mistake::kBeta2Default) ? 0.999 : group.beta2;
  const int64_t late =
      Is(Mistake::kBiasCorrectionLate) && group.adam_steps > 1 ? 1 : 0;
  const auto t = static_cast<double>(group.adam_steps - late);
  const double c1 = 1 - std::pow(group.beta1, t);
  const double c2 = 1 - std::pow(beta2, t);
  for (size_t i = 0; i < p.master.size(); ++i) {
    double& w = p.master[i];
    double& m = p.exp_avg[i];
    double& v = p.exp_avg_sq[i];
    const double g =
        updates_[index][i] + (decoupled ? 0 : group.weight_decay * w);
    m = group.beta1 * m + (1 - group.beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    double root = std::sqrt(v / c2) + group.eps;
    if (Is(Mistake::kEpsInsideRoot)) root = std::sqrt(v / c2 + group.eps);
    if (Is(Mistake::kEpsBeforeCorrection)) {
      root = (std::sqrt(v) + group.eps) / std::sqrt(c2);
    }
    if (decoupled) w *= 1 - lr * group.weight_decay;
    w -= lr * (m / c1) / root;
  }
}

}  // namespace muonstore::oracle
