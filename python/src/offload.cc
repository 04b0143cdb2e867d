// The class behind muonstore.OffloadMuon.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/optimizer_rule.h"
#include "python/src/bindings.h"
#include "python/src/named.h"
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
  optimizer.SetGroup(index, group);
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
        root, {.tag = tag,
               .load = {.allow_missing_state = allow_missing_state,
                        .clipping = ClippingMode::kGradients}});
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
      .def(
          "step",
          [](Self& self, double loss_scale, bool found_overflow) {
            return self.Step(
                {.loss_scale = loss_scale, .found_overflow = found_overflow});
          },
          Unlocked())
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
      .def_prop_rw("group_steps", &Self::group_steps, &Self::set_group_steps)
      .def_prop_ro("memory_bytes", &Self::memory_bytes)
      .def_prop_ro("swapped_bytes", &Self::swapped_bytes)
      .def_prop_ro("owes_weights", &Self::owes_weights)
      .def("save", &Save)
      .def("resume", &Resume);
}

}  // namespace

void BindOffload(nb::module_& module) {
  module.def("is_muon", [](const std::string& name,
                           const std::vector<int64_t>& shape) {
    return DeepSpeedOptimizer(name, Shape(shape)) == Optimizer::kMuon;
  });
  nb::class_<Self> bound(module, "OffloadOptimizer");
  bound
      .def(
          "__init__",
          [](Self* self, const std::vector<SpecTuple>& parameters,
             const OffloadOptions& options) {
            std::vector<ParameterSpec> specs;
            std::ranges::transform(parameters, std::back_inserter(specs),
                                   &SpecOf);
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
          "has_weights",
          [](const Self& self, int32_t parameter, const In& weights) {
            return self.HasWeights(parameter, ValuesOf(weights));
          },
          Unlocked())
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

}  // namespace muonstore::python
