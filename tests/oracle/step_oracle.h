// A Muon + Adam step in double, on whole tensors, without any ranks.
//
// What: the rules of docs/numerics.md, written down once more and slowly. On
//   demand it makes one of the mistakes that executors in the field make, so
//   that tests can prove that they would notice.
#ifndef MUONSTORE_TESTS_ORACLE_STEP_ORACLE_H_
#define MUONSTORE_TESTS_ORACLE_STEP_ORACLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/oracle/matrices.h"
#include "tests/oracle/newton_schulz_oracle.h"

namespace muonstore::oracle {

enum class Mistake {
  kNone,
  // Momentum and Newton-Schulz.
  kNesterovFlipped,
  kMomentumForm,
  kFourIterations,
  kIterationsReversed,
  kNoNormFactor,
  kElementWise,
  // Scale and layout.
  kScaleInverse,
  kScaleUnclamped,
  kRmsOfSmallerSide,
  kConvUnfolded,
  kConvScaleOfKernel,
  kExpertsAsOne,
  kScaleOfWholeTensor,
  kLayoutIgnored,
  kLayoutSwapped,
  // Decay and learning rate.
  kDecayAfter,
  kDecayInGradient,
  kDecayScaled,
  kLearningRateLate,
  // Clipping.
  kClipAfterMomentum,
  kNoClip,
  kClipPerTensor,
  kNormOfMuonOnly,
  kNormOfAdamOnly,
  kDeepSpeedNormOfGradients,
  kDeepSpeedClipsMuonOnly,
  // Overflow, micro-batches, loss scale.
  kAdamCountsSkippedSteps,
  kMomentumDecaysOnSkip,
  kOverflowOfMuonOnly,
  kMicroBatchesSummed,
  kLastMicroBatchOnly,
  kLossScaleKept,
  // Adam.
  kEpsInsideRoot,
  kEpsBeforeCorrection,
  kBiasCorrectionLate,
  kBeta2Default,
};

// Every one but kNone, with a name for messages.
const std::vector<std::pair<Mistake, std::string>>& AllMistakes();

struct StepParameter {
  std::vector<int64_t> shape;
  bool is_trained = true;
  bool is_muon = true;
  size_t group = 0;
  MatrixRule matrices = {};
  std::vector<double> master = {};
  // Zeros where they are not given.
  std::vector<double> momentum = {};
  std::vector<double> exp_avg = {};
  std::vector<double> exp_avg_sq = {};
};

struct GroupRules {
  double lr = 0.02;
  double weight_decay = 0;
  double momentum = 0.95;
  bool nesterov = true;
  bool match_rms = false;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  bool decoupled_decay = true;
  int64_t adam_steps = 0;  // Before the next one.
};

struct StepRules {
  enum class Clip { kOff, kGradients, kDeepSpeed };
  bool accumulates = false;
  Clip clip = Clip::kOff;
  double max_norm = 1;
  bool average_micro_batches = true;
  Iteration iteration = Jordan5();
};

// Of all parameters, in their order.
using MicroBatch = std::vector<std::vector<float>>;

struct StepResult {
  bool skipped = false;
  double norm = 0;
  double clip_factor = 1;
};

class StepOracle {
 public:
  StepOracle(std::vector<StepParameter> parameters,
             std::vector<GroupRules> groups, StepRules rules,
             Mistake mistake = Mistake::kNone);

  GroupRules& group(size_t index) { return groups_[index]; }
  StepResult Step(const std::vector<MicroBatch>& micro_batches,
                  double loss_scale = 1);
  const std::vector<StepParameter>& parameters() const { return parameters_; }

 private:
  using Values = std::vector<double>;

  bool Is(Mistake mistake) const { return mistake_ == mistake; }
  bool IsFinite(const std::vector<MicroBatch>& micro_batches) const;
  void Skip();
  void Average(const std::vector<MicroBatch>& micro_batches, double loss_scale);
  double NormOf(bool of_muon, bool of_adam) const;
  double ClipFactor(double norm) const;
  void ClipGradients(StepResult& result);
  void ClipUpdates(StepResult& result);
  // Replaces what is to be applied by its orthogonalized, scaled form.
  void UpdateMomentum(size_t index);
  void Orthogonalize(size_t index);
  std::vector<IndexedMatrix> MatricesWithMistakes(const StepParameter& p) const;
  double ScaleOf(const StepParameter& p, double rows, double cols) const;
  double ScaleOfMatrix(const StepParameter& p,
                       const IndexedMatrix& matrix) const;
  double DecayScale(const StepParameter& p) const;
  void ApplyMuon(size_t index, double lr);
  void ApplyAdam(size_t index, double lr);

  std::vector<StepParameter> parameters_;
  std::vector<GroupRules> groups_;
  StepRules rules_;
  Mistake mistake_;
  // Of each parameter: gradient, then what is applied.
  std::vector<Values> updates_;
  std::vector<double> last_lr_;
};

}  // namespace muonstore::oracle

#endif  // MUONSTORE_TESTS_ORACLE_STEP_ORACLE_H_
