#include "tests/oracle/step_oracle.h"

namespace muonstore::oracle {

const std::vector<std::pair<Mistake, std::string>>& AllMistakes() {
  static const std::vector<std::pair<Mistake, std::string>> kAll = {
      {Mistake::kNesterovFlipped, "NesterovFlipped"},
      {Mistake::kMomentumForm, "MomentumForm"},
      {Mistake::kFourIterations, "FourIterations"},
      {Mistake::kIterationsReversed, "IterationsReversed"},
      {Mistake::kNoNormFactor, "NoNormFactor"},
      {Mistake::kElementWise, "ElementWise"},
      {Mistake::kScaleInverse, "ScaleInverse"},
      {Mistake::kScaleUnclamped, "ScaleUnclamped"},
      {Mistake::kRmsOfSmallerSide, "RmsOfSmallerSide"},
      {Mistake::kConvUnfolded, "ConvUnfolded"},
      {Mistake::kConvScaleOfKernel, "ConvScaleOfKernel"},
      {Mistake::kExpertsAsOne, "ExpertsAsOne"},
      {Mistake::kScaleOfWholeTensor, "ScaleOfWholeTensor"},
      {Mistake::kLayoutIgnored, "LayoutIgnored"},
      {Mistake::kLayoutSwapped, "LayoutSwapped"},
      {Mistake::kDecayAfter, "DecayAfter"},
      {Mistake::kDecayInGradient, "DecayInGradient"},
      {Mistake::kDecayScaled, "DecayScaled"},
      {Mistake::kLearningRateLate, "LearningRateLate"},
      {Mistake::kClipAfterMomentum, "ClipAfterMomentum"},
      {Mistake::kNoClip, "NoClip"},
      {Mistake::kClipPerTensor, "ClipPerTensor"},
      {Mistake::kNormOfMuonOnly, "NormOfMuonOnly"},
      {Mistake::kNormOfAdamOnly, "NormOfAdamOnly"},
      {Mistake::kDeepSpeedNormOfGradients, "DeepSpeedNormOfGradients"},
      {Mistake::kDeepSpeedClipsMuonOnly, "DeepSpeedClipsMuonOnly"},
      {Mistake::kAdamCountsSkippedSteps, "AdamCountsSkippedSteps"},
      {Mistake::kMomentumDecaysOnSkip, "MomentumDecaysOnSkip"},
      {Mistake::kOverflowOfMuonOnly, "OverflowOfMuonOnly"},
      {Mistake::kMicroBatchesSummed, "MicroBatchesSummed"},
      {Mistake::kLastMicroBatchOnly, "LastMicroBatchOnly"},
      {Mistake::kLossScaleKept, "LossScaleKept"},
      {Mistake::kEpsInsideRoot, "EpsInsideRoot"},
      {Mistake::kEpsBeforeCorrection, "EpsBeforeCorrection"},
      {Mistake::kBiasCorrectionLate, "BiasCorrectionLate"},
      {Mistake::kBeta2Default, "Beta2Default"},
  };
  return kAll;
}

}  // namespace muonstore::oracle
