// A training loop whose optimizer state lives in muonstore.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "muonstore/executor.h"
#include "muonstore/store.h"
#include "muonstore/torch.h"

namespace {

struct Parameter {
  std::string name;
  at::Tensor weight;  // What the model computes with: bf16.
};

// 1. Say what is trained, and by which optimizer: matrices by Muon (group 0),
//    the rest by Adam (group 1).
std::vector<muonstore::ParameterSpec> Specs(
    const std::vector<Parameter>& model) {
  std::vector<muonstore::ParameterSpec> specs;
  for (const Parameter& parameter : model) {
    const bool muon = parameter.weight.dim() >= 2;
    specs.push_back({.name = parameter.name,
                     .shape = muonstore::ShapeOf(parameter.weight),
                     .weight_dtype = muonstore::DType::kBF16,
                     .group = muon ? 0 : 1,
                     .optimizer = muon ? muonstore::Optimizer::kMuon
                                       : muonstore::Optimizer::kAdam});
  }
  return specs;
}

// 2. Cut it under ZeRO, build the store, set the masters. One rank here; with
//    several, StoreOptions::communicator joins them and every rank does this.
muonstore::StateStore MakeStore(const std::vector<Parameter>& model) {
  const auto specs = Specs(model);
  const auto cut =
      muonstore::Partitioning::Build(specs, {.stage = 2, .num_ranks = 1});
  return {specs, cut, muonstore::StoreOptions{}};
}

double TrainStep(std::vector<Parameter>& model, const at::Tensor& inputs,
                 const at::Tensor& targets, muonstore::StateStore& store,
                 muonstore::OffloadExecutor& executor) {
  // 3. Forward and backward, as ever.
  const at::Tensor hidden = at::relu(
      at::linear(inputs.to(at::kBFloat16), model[0].weight, model[1].weight));
  const at::Tensor outputs = at::linear(hidden, model[2].weight);
  const at::Tensor loss = at::mse_loss(outputs.to(at::kFloat), targets);
  loss.backward();

  // 4. Hand the gradients over; of several ranks, their mean. Then step.
  const at::NoGradGuard no_grad;
  for (Parameter& parameter : model) {
    at::Tensor& gradient = parameter.weight.mutable_grad();
    executor.Accumulate(parameter.name, muonstore::ChunkOf(gradient));
    gradient.reset();
  }
  executor.Step();

  // 5. Take the new compute weights.
  for (Parameter& parameter : model) {
    parameter.weight.copy_(
        muonstore::AsTensor(store.Gather(parameter.name, "weight")));
  }
  return loss.item<double>();
}

void Train() {
  at::manual_seed(1);
  std::vector<Parameter> model;
  const auto add = [&](const std::string& name, const at::Tensor& weight) {
    model.push_back({name, weight.to(at::kBFloat16).set_requires_grad(true)});
  };
  add("up.weight", at::randn({64, 16}) / 4);
  add("up.bias", at::zeros({64}));
  add("down.weight", at::randn({4, 64}) / 8);

  muonstore::StateStore store = MakeStore(model);
  for (const Parameter& parameter : model) {
    const at::Tensor master = parameter.weight.detach().to(at::kFloat);
    store.Set(parameter.name, "master", muonstore::FloatsOf(master));
  }
  muonstore::OffloadExecutor executor(
      store, {.groups = {{.lr = 0.01}, {.lr = 0.003}}});

  const at::Tensor inputs = at::randn({32, 16});
  const at::Tensor targets = inputs.narrow(1, 0, 4).sin();
  for (int step = 1; step <= 100; ++step) {
    const double loss = TrainStep(model, inputs, targets, store, executor);
    if (step == 1 || step % 20 == 0) std::printf("%3d  %.4f\n", step, loss);
  }

  // 6. State can be looked at where it lies: no copy, while the lease lives.
  const auto lease = std::make_shared<muonstore::ReadLease>(
      store.Read("up.weight", "momentum"));
  std::printf("momentum of up.weight: norm %.4f\n",
              muonstore::MatrixTensor(lease, 0, 0, 1).norm().item<double>());
}

}  // namespace

int main() {
  try {
    Train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
