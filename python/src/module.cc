#include "python/src/bindings.h"

NB_MODULE(_core, module) {
  namespace python = muonstore::python;
  // Globals of a script outlive the module, which is no leak to tell users of.
  // tests/python/offload_life_test.py looks for those that are.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = MUONSTORE_VERSION;
  python::BindErrors(module);
  python::BindCheckpoint(module);
  python::BindInspect(module);
  python::BindConvert(module);
  python::BindLiveRead(module);
  python::BindLiveWrite(module);
  python::BindOrthogonalize(module);
  python::BindCommunicators(module);
  python::BindOffloadOptions(module);
  python::BindOffloadReports(module);
  python::BindOffload(module);
}
