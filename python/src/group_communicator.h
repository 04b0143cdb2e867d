// A communicator over a process group of torch.distributed, without torch at
// build time.
//
// What: the collectives are methods of a Python object (GroupCalls in
//   muonstore/optimizer/_group_calls.py), which take tensors over our memory.
// Ownership: the communicator keeps the object. Memory that a call gets lives
//   as long as its tensors.
// Threads: as every communicator's. The calls come from a thread of the
//   communicator's own, which takes the GIL: whoever waits for it must have
//   released it.
// Failures: as every communicator's; an exception of Python's is
//   Error(kUnavailable) with its text.

#ifndef MUONSTORE_PYTHON_SRC_GROUP_COMMUNICATOR_H_
#define MUONSTORE_PYTHON_SRC_GROUP_COMMUNICATOR_H_

#include <nanobind/nanobind.h>

#include <memory>

#include "muonstore/communicator.h"

namespace muonstore::python {

// With the GIL.
std::unique_ptr<Communicator> MakeGroupCommunicator(nanobind::object calls);

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_GROUP_COMMUNICATOR_H_
