// What ckpt-inspect tells: listings, faults, statistics, differences.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "muonstore/open.h"
#include "python/src/bindings.h"
#include "python/src/interruptible.h"
#include "src/inspect/diff.h"
#include "src/inspect/stats.h"
#include "tools/ckpt_inspect/diff_output.h"
#include "tools/ckpt_inspect/select.h"
#include "tools/ckpt_inspect/stats_output.h"
#include "tools/ckpt_inspect/verify_output.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using CheckpointPtr = std::shared_ptr<Checkpoint>;

std::string Verify(const std::filesystem::path& path, const std::string& tag,
                   bool quick, const nb::object& progress) {
  VerifyReport report;
  RunInterruptible(progress, [&](const Watch& watch) {
    report = VerifyCheckpoint(PosixFileSystem(), path.string(),
                              {.tag = tag,
                               .quick = quick,
                               .max_names = std::numeric_limits<size_t>::max(),
                               .progress = watch.Progress("verifying")});
  });
  return tools::Render(tools::VerifyJson(report, quick));
}

struct StatsChoice {
  std::string param;
  std::string state;
  int64_t per_head = 0;
  std::vector<int64_t> split;
  int64_t top = 3;
  int32_t jobs = 1;
};

MatrixLayout LayoutOf(const StatsChoice& choice) {
  if (choice.per_head < 0) {
    throw Error(ErrorCode::kInvalidArgument, "`per_head` is a number of blocks",
                {.found = std::to_string(choice.per_head)});
  }
  if (choice.per_head > 0) return MatrixLayout::PerHead(choice.per_head);
  if (!choice.split.empty()) return MatrixLayout::PackedRows(choice.split);
  return MatrixLayout::Whole();
}

std::string Stats(const CheckpointPtr& checkpoint, const StatsChoice& choice,
                  const CheckpointPtr& other, const nb::object& progress) {
  std::vector<MatrixReport> reports;
  RunInterruptible(progress, [&](const Watch& watch) {
    reports = ComputeStats(
        *checkpoint,
        {.tensors = tools::SelectTensors(
             *checkpoint, {.param = choice.param, .state = choice.state}),
         .layout = LayoutOf(choice),
         .other = other.get(),
         .num_singular_values = choice.top,
         .jobs = choice.jobs,
         .progress = watch.Progress("reading")});
    SortWorstFirst(reports);
  });
  tools::Json json;
  tools::AddStatsJson(reports, json);
  return tools::Render(json);
}

struct DiffChoice {
  std::string param;
  std::string state;
  double rtol = 0;
  double atol = 0;
  int32_t jobs = 1;
};

std::string Diff(const CheckpointPtr& a, const CheckpointPtr& b,
                 const DiffChoice& choice, const nb::object& progress) {
  DiffOptions options{.tolerance = {.rtol = choice.rtol, .atol = choice.atol},
                      .jobs = choice.jobs};
  const tools::Selection selection{.param = choice.param,
                                   .state = choice.state};
  if (!selection.empty()) {
    options.select = tools::PairSelector(*a, *b, selection);
  }
  DiffReport report;
  RunInterruptible(progress, [&](const Watch& watch) {
    options.progress = watch.Progress("comparing");
    report = DiffCheckpoints(*a, *b, options);
  });
  return tools::Render(tools::DiffJson(a->info(), b->info(), report));
}

}  // namespace

void BindInspect(nb::module_& module) {
  module.def("verify_json", &Verify, nb::arg("path"), nb::arg("tag"),
             nb::arg("quick"), nb::arg("progress").none());
  nb::class_<StatsChoice>(module, "StatsChoice")
      .def(nb::init<>())
      .def_rw("param", &StatsChoice::param)
      .def_rw("state", &StatsChoice::state)
      .def_rw("per_head", &StatsChoice::per_head)
      .def_rw("split", &StatsChoice::split)
      .def_rw("top", &StatsChoice::top)
      .def_rw("jobs", &StatsChoice::jobs);
  module.def("stats_json", &Stats, nb::arg("checkpoint"), nb::arg("choice"),
             nb::arg("other").none(), nb::arg("progress").none());
  nb::class_<DiffChoice>(module, "DiffChoice")
      .def(nb::init<>())
      .def_rw("param", &DiffChoice::param)
      .def_rw("state", &DiffChoice::state)
      .def_rw("rtol", &DiffChoice::rtol)
      .def_rw("atol", &DiffChoice::atol)
      .def_rw("jobs", &DiffChoice::jobs);
  module.def("diff_json", &Diff, nb::arg("a"), nb::arg("b"), nb::arg("choice"),
             nb::arg("progress").none());
}

}  // namespace muonstore::python
