// The class behind muonstore.OffloadMuon, and what it returns.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/optimizer_rule.h"
#include "python/src/bindings.h"
#include "python/src/offload_optimizer.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using In = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

// Name, shape, dtype, group, optimizer, layout.
using SpecTuple = std::tuple<std::string, std::vector<int64_t>, std::string,
                             int32_t, std::string, std::string>;

// Between looks for a signal.
constexpr std::chrono::milliseconds kBeat{10};

template <typename Value>
Value RequireKnown(const std::optional<Value>& value, const char* what,
                   const std::string& found) {
  if (value) return *value;
  throw Error(ErrorCode::kInvalidArgument, what, {.found = found});
}

template <typename Value>
Value Named(const std::map<std::string, Value>& values, const char* what,
            const std::string& name) {
  const auto found = values.find(name);
  return RequireKnown(
      found == values.end() ? std::nullopt : std::optional(found->second), what,
      name);
}

Optimizer OptimizerNamed(const std::string& name) {
  return Named<Optimizer>({{"muon", Optimizer::kMuon},
                           {"adam", Optimizer::kAdam},
                           {"none", Optimizer::kNone}},
                          "no such optimizer", name);
}

ParameterSpec SpecOf(const SpecTuple& from) {
  const auto& [name, shape, dtype, group, optimizer, layout] = from;
  return {
      .name = name,
      .shape = Shape(shape),
      .weight_dtype = RequireKnown(ParseDType(dtype), "no such dtype", dtype),
      .group = group,
      .optimizer = OptimizerNamed(optimizer),
      .layout = RequireKnown(MatrixLayout::Parse(layout),
                             "no such matrix layout; whole, experts, "
                             "per_head[8], packed_rows[64,64,64], "
                             "interleaved_heads[8 x (1 + 2)] are",
                             layout)};
}

DType DTypeOf(nb::dlpack::dtype dtype) {
  const auto is = [&](nb::dlpack::dtype_code code, int bits) {
    return dtype.code == static_cast<uint8_t>(code) && dtype.bits == bits &&
           dtype.lanes == 1;
  };
  if (is(nb::dlpack::dtype_code::Float, 32)) return DType::kF32;
  if (is(nb::dlpack::dtype_code::Float, 16)) return DType::kF16;
  if (is(nb::dlpack::dtype_code::Bfloat, 16)) return DType::kBF16;
  if (is(nb::dlpack::dtype_code::Float, 64)) return DType::kF64;
  throw Error(ErrorCode::kUnsupported, "values have another dtype than these",
              {.expected = "float32, float16, bfloat16 or float64",
               .found = std::to_string(dtype.bits) + " bits"});
}

Values ValuesOf(const In& array) {
  return {DTypeOf(array.dtype()),
          {static_cast<const std::byte*>(array.data()), array.nbytes()}};
}

std::span<std::byte> SpanOf(const Out& array) {
  return {static_cast<std::byte*>(array.data()), array.nbytes()};
}

void GiveWeights(OffloadOptimizer& optimizer,
                 const std::vector<int32_t>& parameters,
                 const std::vector<Out>& memory) {
  std::vector<OffloadOptimizer::Target> targets;
  for (size_t i = 0; i < memory.size(); ++i) {
    targets.push_back({parameters.at(i), SpanOf(memory[i])});
  }
  const nb::gil_scoped_release release;
  optimizer.GiveWeights(targets);
}

void SetNewtonSchulz(OffloadOptions& options, const std::string& coefficients,
                     const std::string& form, const std::string& precision) {
  NewtonSchulzOptions& to = options.executor.newton_schulz;
  to.coefficients = Named<NewtonSchulzCoefficients>(
      {{"jordan5", NewtonSchulzCoefficients::Jordan5()},
       {"polar_express5", NewtonSchulzCoefficients::PolarExpress5()}},
      "no such coefficients; jordan5 and polar_express5 are", coefficients);
  to.form =
      Named<NewtonSchulzForm>({{"auto", NewtonSchulzForm::kAuto},
                               {"standard", NewtonSchulzForm::kStandard},
                               {"gram", NewtonSchulzForm::kGram}},
                              "no such form; auto, standard, gram are", form);
  to.precision = Named<NewtonSchulzPrecision>(
      {{"f32", NewtonSchulzPrecision::kF32},
       {"bf16", NewtonSchulzPrecision::kBF16}},
      "no such precision; f32 and bf16 are", precision);
}

void SetNvme(OffloadOptions& options, const std::string& directory,
             const std::vector<std::string>& kinds,
             uint64_t resident_below_bytes) {
  const std::shared_ptr<Tier> nvme = MakeNvmeTier({.directory = directory});
  for (const std::string& kind : kinds) {
    options.tiers.kinds[CanonicalStateKind(kind)] = {
        .tier = nvme, .resident_below_bytes = resident_below_bytes};
  }
}

void BindOptions(nb::module_& module) {
  nb::class_<OffloadOptions>(module, "OffloadOptions")
      .def("__init__",
           [](OffloadOptions* options, std::shared_ptr<Communicator> ranks,
              bool row_shards, int32_t num_groups) {
             new (options) OffloadOptions{
                 .placement = row_shards ? Placement::kRowShards
                                         : Placement::kReplicated,
                 .communicator = std::move(ranks)};
             options->executor.groups.resize(static_cast<size_t>(num_groups));
             // As torch adds gradients up.
             options->executor.average_micro_batches = false;
           })
      .def_prop_rw(
          "accumulates",
          [](const OffloadOptions& options) {
            return options.convention == MomentumConvention::kAccumulate;
          },
          [](OffloadOptions& options, bool accumulates) {
            options.convention = accumulates ? MomentumConvention::kAccumulate
                                             : MomentumConvention::kLerp;
          })
      .def_prop_rw(
          "num_threads",
          [](const OffloadOptions& options) {
            return options.executor.num_threads;
          },
          [](OffloadOptions& options, int num_threads) {
            options.executor.num_threads = num_threads;
          })
      .def_rw("max_snapshot_bytes", &OffloadOptions::max_snapshot_bytes)
      .def("set_newton_schulz", &SetNewtonSchulz)
      .def("set_nvme", &SetNvme, Unlocked());
}

void SetGroup(OffloadOptimizer& optimizer, int32_t index, double lr,
              double weight_decay, const nb::dict& rest) {
  GroupHyperParameters group{.lr = lr, .weight_decay = weight_decay};
  if (rest.contains("momentum")) {
    group.momentum = nb::cast<double>(rest["momentum"]);
    group.nesterov = nb::cast<bool>(rest["nesterov"]);
    group.scale = nb::cast<bool>(rest["match_rms"]) ? MuonScaleMode::kMatchRms
                                                    : MuonScaleMode::kSpectral;
  } else {
    group.beta1 = nb::cast<double>(rest["beta1"]);
    group.beta2 = nb::cast<double>(rest["beta2"]);
    group.eps = nb::cast<double>(rest["eps"]);
  }
  optimizer.group(index) = group;
}

void BindReports(nb::module_& module) {
  nb::class_<StepReport>(module, "StepReport")
      .def_ro("overflow", &StepReport::overflow)
      .def_ro("num_nonfinite", &StepReport::num_nonfinite)
      .def_ro("norm", &StepReport::norm)
      .def_ro("clip_factor", &StepReport::clip_factor)
      .def_ro("num_orthogonalized", &StepReport::num_orthogonalized)
      .def_ro("num_orthogonalized_here", &StepReport::num_orthogonalized_here)
      .def_ro("received_bytes", &StepReport::received_bytes)
      .def_ro("peak_gather_bytes", &StepReport::peak_gather_bytes)
      .def_ro("swap_read_bytes", &StepReport::swap_read_bytes)
      .def_ro("swap_written_bytes", &StepReport::swap_written_bytes)
      .def_ro("peak_swap_bytes", &StepReport::peak_swap_bytes)
      .def_ro("prepare_s", &StepReport::prepare_s)
      .def_ro("update_s", &StepReport::update_s)
      .def_ro("exchange_s", &StepReport::exchange_s)
      .def_ro("swap_s", &StepReport::swap_s)
      .def_ro("snapshot_wait_s", &StepReport::snapshot_wait_s)
      .def_ro("orthogonalize_s", &StepReport::orthogonalize_s)
      .def_ro("total_s", &StepReport::total_s);
  nb::class_<SaveReport>(module, "SaveReport")
      .def_ro("tag", &SaveReport::tag)
      .def_ro("path", &SaveReport::path)
      .def_ro("total_bytes", &SaveReport::total_bytes)
      .def_ro("rank_bytes", &SaveReport::rank_bytes)
      .def_ro("save_s", &SaveReport::save_s)
      .def_ro("durable_s", &SaveReport::durable_s)
      .def_ro("waited_s", &SaveReport::waited_s)
      .def_ro("pruned", &SaveReport::pruned)
      .def_ro("notes", &SaveReport::notes);
}

// As SaveHandle::report; a signal ends the waiting, not the save.
SaveReport AwaitReport(const SaveHandle& handle) {
  while (!handle.done()) {
    {
      const nb::gil_scoped_release release;
      std::this_thread::sleep_for(kBeat);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return handle.report();
}

SaveHandle Save(OffloadOptimizer& optimizer, const std::string& root,
                const std::string& tag, const nb::dict& options,
                const std::map<std::string, std::string>& texts) {
  SaveOptions save{.asynchronous = nb::cast<bool>(options["asynchronous"]),
                   .overwrite = nb::cast<bool>(options["overwrite"]),
                   .zstd_level = nb::cast<int>(options["zstd_level"]),
                   .keep = nb::cast<int32_t>(options["keep"])};
  for (const auto& [name, text] : texts) save.scalars.emplace_back(name, text);
  const nb::gil_scoped_release release;
  return optimizer.Save(root, tag, std::move(save));
}

std::map<std::string, std::string> TextsOf(const ScalarMap& scalars) {
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : scalars) {
    if (const auto* text = std::get_if<std::string>(&value)) {
      texts.emplace(name, *text);
    }
  }
  return texts;
}

nb::dict Resume(OffloadOptimizer& optimizer, const std::string& root,
                const std::string& tag, bool allow_missing_state) {
  ResumeReport report;
  {
    const nb::gil_scoped_release release;
    report = optimizer.Resume(
        root,
        {.tag = tag, .load = {.allow_missing_state = allow_missing_state}});
  }
  std::vector<std::pair<std::string, std::string>> passed_over;
  for (const PassedOverTag& of : report.passed_over) {
    passed_over.emplace_back(of.tag, of.reason);
  }
  nb::dict dict;
  dict["tag"] = report.tag;
  dict["step"] = report.step;
  dict["passed_over"] = passed_over;
  dict["missing"] = report.load.missing;
  dict["notes"] = report.load.notes;
  dict["texts"] = TextsOf(report.scalars);
  return dict;
}

using Self = OffloadOptimizer;

void BindGradients(nb::class_<Self>& bound) {
  bound
      .def(
          "accumulate",
          [](Self& self, int32_t parameter, const In& gradient) {
            self.Accumulate(parameter, ValuesOf(gradient));
          },
          Unlocked())
      .def("accumulate_zero", &Self::AccumulateZero, Unlocked())
      .def("discard_gradients", &Self::DiscardGradients)
      .def("set_group", &SetGroup)
      .def("set_max_norm", &Self::set_max_norm)
      .def("step", &Self::Step, Unlocked())
      .def("refuse_step", &Self::RefuseStep, Unlocked());
}

void BindState(nb::class_<Self>& bound) {
  bound
      .def(
          "read_state",
          [](Self& self, int32_t parameter, const std::string& kind,
             const Out& out) { self.ReadState(parameter, kind, SpanOf(out)); },
          Unlocked())
      .def(
          "write_state",
          [](Self& self, int32_t parameter, const std::string& kind,
             const In& values) {
            self.WriteState(parameter, kind, ValuesOf(values));
          },
          Unlocked())
      .def_prop_rw(
          "group_steps", [](Self& self) { return self.record().group_steps; },
          [](Self& self, const std::vector<int64_t>& steps) {
            self.record().group_steps = steps;
          })
      .def_prop_ro("memory_bytes", &Self::memory_bytes)
      .def_prop_ro("swapped_bytes", &Self::swapped_bytes)
      .def("save", &Save)
      .def("resume", &Resume);
}

void BindOptimizer(nb::module_& module) {
  nb::class_<Self> bound(module, "OffloadOptimizer");
  bound
      .def(
          "__init__",
          [](Self* self, const std::vector<SpecTuple>& parameters,
             const OffloadOptions& options) {
            std::vector<ParameterSpec> specs;
            for (const SpecTuple& of : parameters) specs.push_back(SpecOf(of));
            new (self) OffloadOptimizer(std::move(specs), options);
          },
          Unlocked())
      .def("own_range",
           [](const Self& self, int32_t parameter) {
             const ElementRange range = self.own_range(parameter);
             return std::pair(range.begin, range.end);
           })
      .def("or_ranks", &Self::OrRanks, Unlocked())
      .def(
          "take_weights",
          [](Self& self, int32_t parameter, const In& weights) {
            self.TakeWeights(parameter, ValuesOf(weights));
          },
          Unlocked())
      .def("give_weights", &GiveWeights)
      .def("close", &Self::Close, Unlocked());
  BindGradients(bound);
  BindState(bound);
}

}  // namespace

void BindOffload(nb::module_& module) {
  module.def("is_muon", [](const std::string& name,
                           const std::vector<int64_t>& shape) {
    return DeepSpeedOptimizer(name, Shape(shape)) == Optimizer::kMuon;
  });
  nb::class_<SaveHandle>(module, "SaveHandle")
      .def_prop_ro("done", &SaveHandle::done)
      .def("wait", &AwaitReport);
  BindReports(module);
  BindOptions(module);
  BindOptimizer(module);
}

}  // namespace muonstore::python
