// What saving a live run needs: its description, and the steps of a save.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/dtype.h"
#include "muonstore/error.h"
#include "python/src/bindings.h"
#include "python/src/buffers.h"
#include "python/src/interruptible.h"
#include "python/src/live_run.h"
#include "python/src/live_save.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;

DType DTypeNamed(const std::string& name) {
  const auto dtype = ParseDType(name);
  if (!dtype) {
    throw Error(ErrorCode::kUnsupported, "no such dtype", {.found = name});
  }
  return *dtype;
}

Optimizer OptimizerOrOther(const std::string& name) {
  for (const Optimizer optimizer :
       {Optimizer::kMuon, Optimizer::kAdam, Optimizer::kNone}) {
    if (name == OptimizerName(optimizer)) return optimizer;
  }
  return Optimizer::kOther;
}

void AddParameter(LiveRun& run, const std::string& name,
                  const std::vector<int64_t>& shape, const std::string& dtype,
                  int32_t group, const std::string& optimizer) {
  run.parameters.push_back({.name = name,
                            .shape = Shape(shape),
                            .weight_dtype = DTypeNamed(dtype),
                            .group = group,
                            .optimizer = OptimizerOrOther(optimizer)});
}

void AddFlatGroup(LiveRun& run, int32_t group,
                  const std::vector<int32_t>& parameters,
                  const std::vector<int64_t>& pad_after,
                  int64_t partition_elements) {
  run.flat_groups.push_back({.group = group,
                             .parameters = parameters,
                             .pad_after = pad_after,
                             .partition_elements = partition_elements});
  run.states.emplace_back();
}

void AddState(LiveRun& run, const std::string& kind, const std::string& dtype) {
  run.states.back().emplace_back(kind, DTypeNamed(dtype));
}

void AddSingle(LiveRun& run, const std::string& name, const std::string& kind,
               const std::vector<int64_t>& shape, const std::string& dtype) {
  run.singles.push_back(
      {.key = {name, kind}, .shape = Shape(shape), .dtype = DTypeNamed(dtype)});
}

void AddGroup(LiveRun& run, const std::string& name,
              const std::string& optimizer, std::optional<int64_t> step,
              const ScalarMap& hyper_parameters) {
  ParamGroup group{.name = name,
                   .optimizer = OptimizerOrOther(optimizer),
                   .hyper_parameters = hyper_parameters,
                   .step = step};
  const auto index = static_cast<int32_t>(run.info.groups.size());
  for (const ParameterSpec& spec : run.parameters) {
    if (spec.group != index || spec.optimizer == Optimizer::kNone) continue;
    ++group.num_parameters;
    group.num_elements += spec.shape.num_elements();
  }
  run.info.groups.push_back(std::move(group));
}

void SetMomentum(LiveRun& run, std::optional<double> loss_scale) {
  MomentumRecord record;
  if (loss_scale) {
    record.unit = MomentumUnit::kLossScaled;
    record.scale_in_file = loss_scale;
  }
  run.info.momentum = record;
}

void BindRun(nb::module_& module) {
  nb::class_<LiveRun>(module, "LiveRun")
      .def(nb::init<>())
      .def_rw("stage", &LiveRun::stage)
      .def_rw("num_ranks", &LiveRun::num_ranks)
      .def_rw("rank", &LiveRun::rank)
      .def("add_parameter", &AddParameter)
      .def("add_flat_group", &AddFlatGroup)
      .def("add_state", &AddState)
      .def("add_single", &AddSingle)
      .def("add_group", &AddGroup, nb::arg("name"), nb::arg("optimizer"),
           nb::arg("step").none(), nb::arg("hyper_parameters"))
      .def("set_momentum", &SetMomentum, nb::arg("loss_scale").none())
      .def("set_run",
           [](LiveRun& run, const std::string& producer, int64_t step,
              const ScalarMap& counters) {
             run.info.format = "live";
             run.info.producer = producer;
             run.info.step = step;
             run.info.counters = counters;
           })
      .def("set_form",
           [](LiveRun& run, const std::string& precision,
              const std::string& offload, const std::string& optimizer_class) {
             run.info.precision = precision;
             run.info.offload = offload;
             run.info.optimizer_class = optimizer_class;
           })
      .def("set_module_order",
           [](LiveRun& run, const std::vector<std::string>& names) {
             run.info.module_order = names;
           })
      .def("add_alias", [](LiveRun& run, const std::string& dropped,
                           const std::string& kept) {
        run.info.aliases.emplace(dropped, kept);
      });
}

void Write(LiveSave& save, const nb::list& objects,
           const nb::object& progress) {
  std::vector<std::unique_ptr<WritableBuffer>> kept;
  std::vector<std::span<const std::byte>> buffers;
  for (const nb::handle object : objects) {
    kept.push_back(
        std::make_unique<WritableBuffer>(nb::borrow<nb::object>(object)));
    buffers.emplace_back(kept.back()->span());
  }
  RunInterruptible(progress, [&](const Watch& watch) {
    save.Write(buffers, watch.Progress("saving"));
  });
}

nb::bytes Report(LiveSave& save) {
  const std::vector<std::byte> report = save.Report();
  return nb::bytes(report.data(), report.size());
}

void Commit(LiveSave& save, const std::vector<nb::bytes>& reports,
            const std::vector<std::string>& carried) {
  std::vector<std::vector<std::byte>> bytes;
  for (const nb::bytes& report : reports) {
    const auto* data = static_cast<const std::byte*>(report.data());
    bytes.emplace_back(data, data + report.size());
  }
  const nb::gil_scoped_release release;
  save.Commit(bytes, carried);
}

}  // namespace

void BindLiveWrite(nb::module_& module) {
  BindRun(module);
  nb::class_<LiveSave>(module, "LiveSave")
      .def(
          "__init__",
          [](LiveSave* self, const LiveRun& run, const std::string& root,
             const std::string& tag, bool overwrite, int zstd, bool set_latest,
             int32_t keep) {
            new (self) LiveSave(run, {.root = root,
                                      .tag = tag,
                                      .overwrite = overwrite,
                                      .zstd_level = zstd,
                                      .set_latest = set_latest,
                                      .keep = keep});
          },
          nb::arg("run"), nb::kw_only(), nb::arg("root"), nb::arg("tag"),
          nb::arg("overwrite"), nb::arg("zstd"), nb::arg("set_latest"),
          nb::arg("keep"))
      .def("open", &LiveSave::Open, nb::call_guard<nb::gil_scoped_release>())
      .def("plan", &LiveSave::Plan)
      .def("segments",
           [](const LiveSave& save) {
             nb::list segments;
             for (const LiveSegment& it : save.segments()) {
               segments.append(nb::make_tuple(it.kind, it.flat_group, it.name,
                                              it.num_elements));
             }
             return segments;
           })
      .def("write", &Write, nb::arg("buffers"), nb::arg("progress").none())
      .def("report", &Report)
      .def("commit", &Commit)
      .def("close", &LiveSave::Close)
      .def("path", &LiveSave::path)
      .def("notes", &LiveSave::notes)
      .def("pruned", &LiveSave::pruned);
}

}  // namespace muonstore::python
