// What each file of bindings adds to muonstore._core.
//
// The package's Python files are the door for users; these functions and
// classes are theirs alone. Whatever is long runs without the GIL.

#ifndef MUONSTORE_PYTHON_SRC_BINDINGS_H_
#define MUONSTORE_PYTHON_SRC_BINDINGS_H_

#include <nanobind/nanobind.h>

namespace muonstore::python {

// muonstore::Error becomes muonstore.Error; first of all.
void BindErrors(nanobind::module_& module);
void BindCheckpoint(nanobind::module_& module);
void BindInspect(nanobind::module_& module);
void BindConvert(nanobind::module_& module);
void BindLiveRead(nanobind::module_& module);
void BindLiveWrite(nanobind::module_& module);
void BindOrthogonalize(nanobind::module_& module);
void BindCommunicators(nanobind::module_& module);
// Before BindOffload, whose functions take and give their classes.
void BindOffloadOptions(nanobind::module_& module);
void BindOffloadReports(nanobind::module_& module);
void BindOffload(nanobind::module_& module);

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_BINDINGS_H_
