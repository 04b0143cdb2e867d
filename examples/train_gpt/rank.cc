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

#include "examples/train_gpt/checkpoints.h"
#include "examples/train_gpt/curve.h"
#include "examples/train_gpt/gpt.h"
#include "examples/train_gpt/gradients.h"
#include "examples/train_gpt/ranks_mean.h"
#include "examples/train_gpt/state.h"
#include "examples/train_gpt/text.h"
#include "muonstore/communicator.h"
#include "muonstore/executor.h"
#include "muonstore/store.h"
#include "muonstore/torch.h"

namespace train_gpt {
namespace {

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
  if (optimizer.coefficients == Coefficients::kPolarExpress5) {
    options.newton_schulz.coefficients =
        muonstore::NewtonSchulzCoefficients::PolarExpress5();
  }
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

// The compute weights of all ranks into the model.
void TakeWeights(muonstore::StateStore& store, Gpt& gpt) {
  for (const NamedTensor& parameter : gpt.parameters()) {
    at::Tensor weight = parameter.tensor;
    weight.copy_(muonstore::AsTensor(
        store.Gather(parameter.name, std::string(muonstore::kWeight))));
  }
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
  TakeWeights(store, gpt);
  return report.norm;
}

}  // namespace

void RunRank(const Flags& flags) {
  // A rank whose launcher was killed goes, too.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (flags.launcher_pid != 0 && getppid() != flags.launcher_pid) {
    std::exit(1);  // It went before that call.
  }
  const std::shared_ptr<muonstore::Communicator> communicator =
      muonstore::ConnectSharedMemory({.rank = *flags.rank,
                                      .size = flags.num_ranks,
                                      .rendezvous = flags.rendezvous});
  const std::string text = ReadText(flags.text);
  const auto weights = InitialWeights(flags.model, flags.seed);
  Gpt gpt(flags.model, weights);
  const auto store = MakeStore(flags, weights, communicator);
  const muonstore::ExecutorOptions options = StepOptions(flags);
  muonstore::OffloadExecutor executor(*store, options);
  Checkpoints checkpoints(flags, *store, options.groups);
  int64_t first_step = 0;
  if (!flags.checkpoints.resume.empty()) {
    const at::NoGradGuard no_grad;
    first_step = ResumeRun(flags, *store);
    TakeWeights(*store, gpt);
  }
  std::optional<Curve> curve;
  if (*flags.rank == 0) curve.emplace(flags, first_step);
  for (int64_t step = first_step; step < flags.num_steps; ++step) {
    const auto share = BackwardOfShare(flags, text, step, gpt);
    const at::NoGradGuard no_grad;
    const at::Tensor gradient = MeanOverRanks(*communicator, Flatten(share));
    const at::Tensor loss =
        MeanOverRanks(*communicator, at::full({1}, share.loss, at::kFloat));
    const double norm = Update(gradient, gpt, *store, executor);
    if (curve) curve->Add({loss.item<double>(), norm});
    checkpoints.AfterStep(step + 1);
  }
  checkpoints.Finish();
  executor.Close();
  store->Close();
  if (curve) curve->Finish();
}

}  // namespace train_gpt
