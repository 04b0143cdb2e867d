#include "python/src/bindings.h"

NB_MODULE(_core, module) {
  using namespace muonstore::python;
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
