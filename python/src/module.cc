#include "python/src/bindings.h"

NB_MODULE(_core, module) {
  using namespace muonstore::python;
  // Globals of a script outlive the module, which is no leak to tell users of.
  // tests/python/offload_life_test.py looks for those that are.
  nb::set_leak_warnings(false);
  module.attr("__version__") = MUONSTORE_VERSION;
  BindErrors(module);
  BindCheckpoint(module);
  BindInspect(module);
  BindConvert(module);
  BindLiveRead(module);
  BindLiveWrite(module);
  BindOrthogonalize(module);
  BindCommunicators(module);
  BindOffloadOptions(module);
  BindOffloadReports(module);
  BindOffload(module);
}
