// Values of torch files as Python's own.
//
// What: containers, numbers, texts and bytes become themselves, tensors arrays
//   with their payload; NumPy's scalars, whose construction is known, become
//   scalars. Of any other class nothing is imported or called: it becomes a
//   muonstore.Opaque that says what it is. Shared containers stay shared.
// Threads: with the GIL.
// Failures: Error of the file; kUnsupported for values nested too deeply.

#ifndef MUONSTORE_PYTHON_SRC_VALUES_H_
#define MUONSTORE_PYTHON_SRC_VALUES_H_

#include <nanobind/nanobind.h>

#include "formats/torchfile/carried_state.h"

namespace muonstore::python {

// What stands for a logical tensor of the checkpoint becomes None. Of a tensor
// the object is what finish(array, dtype, torch's dtype) gives.
nanobind::object ToPython(const torchfile::TreeRef& tree,
                          const nanobind::object& finish);

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_VALUES_H_
