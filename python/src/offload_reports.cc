// What a step and a save of muonstore.OffloadMuon tell.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <thread>

#include "muonstore/executor.h"
#include "muonstore/save.h"
#include "python/src/bindings.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;

// Between looks for a signal.
constexpr std::chrono::milliseconds kBeat{10};

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

// "StepReport(overflow=False, norm=1.25, ...)", of every attribute.
std::string ReprOf(nb::handle object) {
  std::string text;
  for (nb::handle name : nb::module_::import_("builtins").attr("dir")(object)) {
    const auto attribute = nb::cast<std::string>(name);
    if (attribute.front() == '_') continue;
    text += text.empty() ? "" : ", ";
    text += attribute + "=" + nb::repr(object.attr(name)).c_str();
  }
  return nb::cast<std::string>(object.type().attr("__name__")) + "(" + text +
         ")";
}

}  // namespace

void BindOffloadReports(nb::module_& module) {
  nb::class_<SaveHandle>(module, "SaveHandle")
      .def_prop_ro("done", &SaveHandle::done)
      .def("wait", &AwaitReport);
  nb::class_<StepReport>(module, "StepReport")
      .def("__repr__", &ReprOf)
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
      .def("__repr__", &ReprOf)
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

}  // namespace muonstore::python
