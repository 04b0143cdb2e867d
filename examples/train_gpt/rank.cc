#include "examples/train_gpt/rank.h"

#include <sys/prctl.h>

#include <csignal>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include "examples/train_gpt/curve.h"
#include "examples/train_gpt/gpt.h"
#include "examples/train_gpt/gradients.h"
#include "examples/train_gpt/ranks_mean.h"
#include "examples/train_gpt/text.h"
#include "muonstore/communicator.h"
#include "muonstore/executor.h"
#include "muonstore/store.h"
#include "muonstore/torch.h"

namespace train_gpt {
namespace {

using muonstore::MatrixLayout;

constexpr int32_t kMuonGroup = 0;
constexpr int32_t kAdamGroup = 1;

MatrixLayout LayoutOf(const NamedTensor& weight, const Flags& flags) {
  if (!weight.name.ends_with("qkv.weight") ||
      flags.optimizer.qkv == QkvLayout::kWhole) {
    return MatrixLayout::Whole();
  }
  const int64_t dim = flags.model.dim;
  return flags.optimizer.qkv == QkvLayout::kPacked
             ? MatrixLayout::PackedRows({dim, dim, dim})
             : MatrixLayout::PerHead(3 * flags.model.num_heads);
}

std::vector<muonstore::ParameterSpec> SpecsOf(
    const std::vector<NamedTensor>& weights, const Flags& flags) {
  std::vector<muonstore::ParameterSpec> specs;
  for (const NamedTensor& weight : weights) {
    const bool muon = TakesMuon(weight);
    specs.push_back({
        .name = weight.name,
        .shape = muonstore::ShapeOf(weight.tensor),
        .weight_dtype =
            flags.model.bf16 ? muonstore::DType::kBF16 : muonstore::DType::kF32,
        .group = muon ? kMuonGroup : kAdamGroup,
        .optimizer =
            muon ? muonstore::Optimizer::kMuon : muonstore::Optimizer::kAdam,
        .layout = LayoutOf(weight, flags),
    });
  }
  return specs;
}

std::unique_ptr<muonstore::StateStore> MakeStore(
    const Flags& flags, const std::vector<NamedTensor>& weights,
    const std::shared_ptr<muonstore::Communicator>& communicator) {
  const auto specs = SpecsOf(weights, flags);
  const auto cut = muonstore::Partitioning::Build(
      specs, {.stage = flags.stage, .num_ranks = flags.num_ranks});
  auto store = std::make_unique<muonstore::StateStore>(
      specs, cut, muonstore::StoreOptions{.communicator = communicator});
  store->record().convention = flags.optimizer.accumulate
                                   ? muonstore::MomentumConvention::kAccumulate
                                   : muonstore::MomentumConvention::kLerp;
  for (const NamedTensor& weight : weights) {
    const auto values = muonstore::FloatsOf(weight.tensor);
    store->Set(weight.name, std::string(muonstore::kMaster), values);
    store->Set(weight.name, std::string(muonstore::kWeight), values);
  }
  return store;
}

muonstore::NewtonSchulzForm FormOf(NewtonSchulz form) {
  switch (form) {
    case NewtonSchulz::kStandard:
      return muonstore::NewtonSchulzForm::kStandard;
    case NewtonSchulz::kGram:
      return muonstore::NewtonSchulzForm::kGram;
    case NewtonSchulz::kAuto:
      break;
  }
  return muonstore::NewtonSchulzForm::kAuto;
}

muonstore::ExecutorOptions StepOptions(const Flags& flags) {
  const OptimizerFlags& optimizer = flags.optimizer;
  muonstore::GroupHyperParameters muon;
  muon.lr = optimizer.muon_lr;
  muon.weight_decay = optimizer.weight_decay;
  muon.momentum = optimizer.momentum;
  muon.nesterov = optimizer.nesterov;
  muon.scale = optimizer.match_rms ? muonstore::MuonScaleMode::kMatchRms
                                   : muonstore::MuonScaleMode::kSpectral;
  muonstore::GroupHyperParameters adam;
  adam.lr = optimizer.adam_lr;
  adam.weight_decay = optimizer.weight_decay;
  muonstore::ExecutorOptions options;
  options.groups = {muon, adam};
  options.newton_schulz.form = FormOf(optimizer.newton_schulz);
  options.max_norm = optimizer.max_norm;
  options.num_threads = flags.num_threads;
  return options;
}

// The model's part of a step: this rank's share of the batch.
Gpt::Gradients BackwardOfShare(const Flags& flags, const std::string& text,
                               int64_t step, Gpt& gpt) {
  const int64_t share = flags.batch / flags.num_ranks;
  return gpt.Backward(Samples(text, flags.seed, flags.model.context + 1,
                              {step, *flags.rank * share, share}));
}

// The store's part: gradients in, new compute weights out.
// Returns the norm of the gradients.
double Update(const at::Tensor& gradient, Gpt& gpt,
              muonstore::StateStore& store,
              muonstore::OffloadExecutor& executor) {
  const auto gradients = Unflatten(gradient, gpt.parameters());
  for (size_t i = 0; i < gradients.size(); ++i) {
    executor.Accumulate(gpt.parameters()[i].name,
                        muonstore::ChunkOf(gradients[i]));
  }
  const muonstore::StepReport report = executor.Step();
  for (const NamedTensor& parameter : gpt.parameters()) {
    at::Tensor weight = parameter.tensor;
    weight.copy_(muonstore::AsTensor(
        store.Gather(parameter.name, std::string(muonstore::kWeight))));
  }
  return report.norm;
}

}  // namespace

void RunRank(const Flags& flags) {
  // A rank whose launcher was killed goes, too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::shared_ptr<muonstore::Communicator> communicator =
      muonstore::ConnectSharedMemory({.rank = *flags.rank,
                                      .size = flags.num_ranks,
                                      .rendezvous = flags.rendezvous});
  const std::string text = ReadText(flags.text);
  const auto weights = InitialWeights(flags.model, flags.seed);
  Gpt gpt(flags.model, weights);
  const auto store = MakeStore(flags, weights, communicator);
  muonstore::OffloadExecutor executor(*store, StepOptions(flags));
  std::optional<Curve> curve;
  if (*flags.rank == 0) curve.emplace(flags);
  for (int64_t step = 0; step < flags.num_steps; ++step) {
    const auto share = BackwardOfShare(flags, text, step, gpt);
    const at::NoGradGuard no_grad;
    const at::Tensor gradient = MeanOverRanks(*communicator, Flatten(share));
    const at::Tensor loss =
        MeanOverRanks(*communicator, at::full({1}, share.loss, at::kFloat));
    const double norm = Update(gradient, gpt, *store, executor);
    if (curve) curve->Add({loss.item<double>(), norm});
  }
  executor.Close();
  store->Close();
  if (curve) curve->Finish();
}

}  // namespace train_gpt
