#include "tests/testutil/replay.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "tests/testutil/fixtures.h"
#include "tests/testutil/hdf5_file.h"

#include <nlohmann/json.hpp>

namespace muonstore::testutil {
namespace {

using nlohmann::json;

constexpr const char* kGradientsFile = "steps-grads";

std::filesystem::path FileOf(const std::string& stem) {
  return FixturePath("replay/" + stem + ".h5");
}

// "x" of every replay file "<prefix>x.h5" of the largest root that has any.
std::vector<std::string> NamesOf(const std::string& prefix) {
  const std::filesystem::path folder = FileOf(kGradientsFile).parent_path();
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string stem = entry.path().stem().string();
    if (entry.path().extension() == ".h5" && stem.starts_with(prefix) &&
        stem != kGradientsFile) {
      names.push_back(stem.substr(prefix.size()));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

double RequireNumber(const Hdf5File& file, const std::string& object,
                     const std::string& attribute) {
  const auto value = file.Number(object, attribute);
  if (!value) {
    throw std::runtime_error(object + " has no attribute " + attribute);
  }
  return *value;
}

std::vector<std::vector<float>> SplitSteps(const Hdf5Tensor& all) {
  const std::vector<float> values = all.floats();
  const auto steps = static_cast<size_t>(all.shape.at(0));
  const size_t size = steps == 0 ? 0 : values.size() / steps;
  std::vector<std::vector<float>> split;
  for (size_t i = 0; i < steps; ++i) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(i * size);
    split.emplace_back(first, first + static_cast<std::ptrdiff_t>(size));
  }
  return split;
}

ExpectedState ReadExpected(const Hdf5File& file, const std::string& group,
                           const char* tolerance, const char* strict) {
  ExpectedState state;
  for (const std::string& name : file.DatasetsUnder(group)) {
    state.emplace(
        name.substr(group.size() + 1),
        ExpectedTensor{.values = file.Read(name).floats(),
                       .tolerance = RequireNumber(file, name, tolerance),
                       .strict_tolerance = RequireNumber(file, name, strict)});
  }
  return state;
}

float ParseSpecial(const json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "nan";
  return std::stof(text);
}

void ReadRules(const json& hyper, StepsReplay& replay) {
  replay.momentum = hyper.at("beta");
  replay.accumulates = hyper.at("momentum") == "accumulate";
  replay.nesterov = hyper.at("nesterov");
  replay.match_rms = hyper.at("scale") == "match_rms";
  replay.polar_express = hyper.at("coefs") == "pe5";
  replay.weight_decay = hyper.at("wd");
  replay.beta1 = hyper.at("beta1");
  replay.beta2 = hyper.at("beta2");
  replay.eps = hyper.at("adam_eps");
  replay.clip = hyper.at("clip");
  replay.clip_norm = hyper.value("clip_norm", 0.0);
  replay.num_heads = hyper.at("heads");
  replay.micro_batches = hyper.value("micro", int64_t{1});
  replay.loss_scale = hyper.value("loss_scale", 1.0);
  replay.overflow_step = hyper.value("overflow_step", int64_t{0});
  if (hyper.at("split").is_string()) replay.split = hyper.at("split");
  for (const json& site : hyper.value("overflow_at", json::array())) {
    replay.overflow_sites.push_back({.parameter = site.at(0),
                                     .index = site.at(1),
                                     .value = ParseSpecial(site.at(2))});
  }
}

// "step_012" -> 12; other names: -1.
int64_t StepNumber(std::string_view name) {
  constexpr std::string_view kPrefix = "step_";
  if (!name.starts_with(kPrefix)) return -1;
  return std::stoll(std::string(name.substr(kPrefix.size())));
}

DeepSpeedReplayStep ReadStep(const Hdf5File& file, const std::string& group) {
  const std::vector<double> lr = file.Read(group + "/lr").values;
  DeepSpeedReplayStep step{
      .lr_muon = lr.at(0),
      .lr_adam = lr.at(1),
      .loss_scale = RequireNumber(file, group, "loss_scale"),
      .norm = RequireNumber(file, group, "global_grad_norm"),
      .after = ReadExpected(file, group + "/after", "tol_loose", "tol_strict")};
  const std::string average = group + "/avg_grad";
  for (const std::string& name : file.DatasetsUnder(average)) {
    step.gradients.emplace(name.substr(average.size() + 1),
                           file.Read(name).floats());
  }
  if (!step.gradients.empty()) return step;
  // Of each rank alone: <group>/local_grad/rank_<r>/<parameter>.
  const std::string local = group + "/local_grad";
  std::map<std::string, std::vector<std::vector<double>>> by_name;
  for (const std::string& name : file.DatasetsUnder(local)) {
    const size_t slash = name.find('/', local.size() + 1);
    by_name[name.substr(slash + 1)].push_back(file.Read(name).values);
  }
  for (const auto& [name, ranks] : by_name) {
    std::vector<float>& mean = step.gradients[name];
    for (size_t i = 0; i < ranks[0].size(); ++i) {
      double sum = 0;
      for (const std::vector<double>& rank : ranks) sum += rank[i];
      mean.push_back(
          static_cast<float>(sum / static_cast<double>(ranks.size())));
    }
  }
  return step;
}

}  // namespace

std::vector<ReplayParameter> ReadReplayParameters() {
  const Hdf5File file(FileOf(kGradientsFile));
  std::vector<std::pair<double, ReplayParameter>> ordered;
  for (const std::string& name : file.DatasetsUnder("init")) {
    const std::string parameter = name.substr(std::string("init/").size());
    const Hdf5Tensor init = file.Read(name);
    ordered.emplace_back(
        RequireNumber(file, name, "order"),
        ReplayParameter{
            .name = parameter,
            .kind = file.Text(name, "kind").value_or(""),
            .shape = init.shape,
            .init = init.floats(),
            .gradients = SplitSteps(file.Read("grads/" + parameter))});
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<ReplayParameter> parameters;
  for (auto& [order, parameter] : ordered) {
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::vector<std::string> StepsReplayNames() { return NamesOf("steps-"); }

StepsReplay ReadStepsReplay(const std::string& name) {
  const Hdf5File file(FileOf("steps-" + name));
  StepsReplay replay{.name = name,
                     .lr_muon = file.Read("lr_muon").values,
                     .lr_adam = file.Read("lr_adam").values};
  ReadRules(json::parse(file.Text("/", "hyper").value_or("null")), replay);
  for (const std::string& dataset : file.DatasetsUnder("expected")) {
    const std::string group = dataset.substr(0, dataset.find('/', 9));
    const int64_t step = StepNumber(group.substr(9));
    if (!replay.expected.contains(step)) {
      replay.expected.emplace(
          step, ReadExpected(file, group, "tol_f32_abs", "tol_f32_strict"));
    }
  }
  return replay;
}

std::vector<std::string> DeepSpeedReplayNames() {
  return NamesOf("deepspeed-");
}

DeepSpeedReplay ReadDeepSpeedReplay(const std::string& source_case) {
  const Hdf5File file(FileOf("deepspeed-" + source_case));
  DeepSpeedReplay replay{.source_case = source_case};
  const json hyper = json::parse(file.Text("/", "hyper").value_or("null"));
  replay.f32_gradients = hyper.at("precision") == "fp32";
  for (int64_t step = 1; step < 1000; ++step) {
    const std::string group = "step_" + std::to_string(step);
    if (file.Has(group + "/lr")) replay.steps.push_back(ReadStep(file, group));
  }
  return replay;
}

}  // namespace muonstore::testutil
