// Runs optimizer steps from files, so that scripts can compare our arithmetic
// with that of other programs.
//
//   step_file RUN.json
//
// RUN.json: {"folder", "steps", "save_after": [step...], "gradient_dtype",
// "parameters": [{"name", "shape", "optimizer": "muon" or "adam"}], "muon":
// {"lr", "momentum", "weight_decay"}, "adam": {"lr", "beta1", "beta2", "eps",
// "weight_decay", "order": "torch" or "deepspeed", "decoupled"}, "form",
// "precision"}. Below the folder, packed and row-major: NAME.init (f32) and
// NAME.gradients (one step behind the other) are read, NAME.STEP (f32) are
// written.

#include <algorithm>
#include <cstddef>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/executor.h"
#include "muonstore/store.h"

#include <nlohmann/json.hpp>

namespace muonstore {
namespace {

using nlohmann::json;

std::vector<std::byte> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void WriteFile(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

std::vector<ParameterSpec> ModelOf(const json& run) {
  std::vector<ParameterSpec> model;
  for (const json& parameter : run.at("parameters")) {
    const bool is_muon = parameter.at("optimizer") == "muon";
    model.push_back(
        {.name = parameter.at("name"),
         .shape = Shape(parameter.at("shape").get<std::vector<int64_t>>()),
         .weight_dtype = DType::kF32,
         .group = is_muon ? 0 : 1,
         .optimizer = is_muon ? Optimizer::kMuon : Optimizer::kAdam});
  }
  return model;
}

ExecutorOptions OptionsOf(const json& run) {
  const json& muon = run.at("muon");
  const json& adam = run.at("adam");
  ExecutorOptions options;
  options.groups = {
      {.lr = muon.at("lr"),
       .weight_decay = muon.at("weight_decay"),
       .momentum = muon.at("momentum")},
      {.lr = adam.at("lr"),
       .weight_decay = adam.at("weight_decay"),
       .beta1 = adam.at("beta1"),
       .beta2 = adam.at("beta2"),
       .eps = adam.at("eps"),
       .adam_order = adam.at("order") == "torch" ? AdamOrder::kTorch
                                                 : AdamOrder::kDeepSpeed,
       .decoupled_decay = adam.at("decoupled")}};
  const std::string form = run.at("form");
  if (form == "standard") {
    options.newton_schulz.form = NewtonSchulzForm::kStandard;
  } else if (form == "gram") {
    options.newton_schulz.form = NewtonSchulzForm::kGram;
  }
  if (run.at("precision") == "bf16") {
    options.newton_schulz.precision = NewtonSchulzPrecision::kBF16;
  }
  options.newton_schulz.normalization = NewtonSchulzNormalization::kCompat;
  return options;
}

void Run(const json& run) {
  const std::string folder = run.at("folder").get<std::string>() + "/";
  const DType dtype = ParseDType(run.at("gradient_dtype").get<std::string>())
                          .value_or(DType::kF32);
  std::vector<ParameterSpec> model = ModelOf(run);
  Partitioning partitioning = Partitioning::Build(model, {});
  StateStore store(model, std::move(partitioning), {});
  store.record().clipping = ClippingMode::kOff;
  std::vector<std::vector<std::byte>> gradients;
  for (const ParameterSpec& spec : model) {
    std::vector<float> init(static_cast<size_t>(spec.shape.num_elements()));
    ConvertToF32(DType::kF32, ReadFile(folder + spec.name + ".init"), init);
    store.Set(spec.name, StateKind(kMaster), init);
    gradients.push_back(ReadFile(folder + spec.name + ".gradients"));
  }
  ExecutorOptions options = OptionsOf(run);
  options.groups.resize(store.record().group_steps.size());
  OffloadExecutor executor(store, std::move(options));
  const auto save_after = run.at("save_after").get<std::vector<size_t>>();
  for (size_t step = 1; step <= run.at("steps").get<size_t>(); ++step) {
    for (size_t i = 0; i < model.size(); ++i) {
      const auto bytes =
          static_cast<size_t>(model[i].shape.num_elements() * SizeBytes(dtype));
      executor.Accumulate(
          model[i].name,
          {.dtype = dtype,
           .data = std::span(gradients[i]).subspan((step - 1) * bytes, bytes)});
    }
    executor.Step();
    if (std::find(save_after.begin(), save_after.end(), step) ==
        save_after.end()) {
      continue;
    }
    for (const ParameterSpec& spec : model) {
      WriteFile(folder + spec.name + "." + std::to_string(step),
                store.Gather(spec.name, StateKind(kMaster)).data);
    }
  }
}

}  // namespace
}  // namespace muonstore

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: step_file RUN.json\n";
    return 2;
  }
  try {
    std::ifstream file(argv[1]);
    muonstore::Run(nlohmann::json::parse(file));
  } catch (const std::exception& error) {
    std::cerr << "step_file: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
