// How the ranks of a Python job are joined.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "muonstore/communicator.h"
#include "python/src/bindings.h"
#include "python/src/group_communicator.h"

namespace muonstore::python {
namespace {

namespace nb = nanobind;
using CommunicatorPtr = std::shared_ptr<Communicator>;
using Unlocked = nb::call_guard<nb::gil_scoped_release>;

CommunicatorPtr ConnectNode(int32_t rank, int32_t size,
                            const std::string& rendezvous, double timeout_s) {
  return ConnectSharedMemory({.rank = rank,
                              .size = size,
                              .rendezvous = rendezvous,
                              .timeout = std::chrono::milliseconds(
                                  static_cast<int64_t>(timeout_s * 1000))});
}

// Ranks of this node by shared memory, all others by the group; the latter for
// all with an empty rendezvous.
CommunicatorPtr ConnectNodes(nb::object group, int32_t rank, int32_t size,
                             const std::string& rendezvous, double timeout_s) {
  std::unique_ptr<Communicator> across =
      MakeGroupCommunicator(std::move(group));
  const nb::gil_scoped_release release;
  if (rendezvous.empty()) return across;
  return MakeHierarchicalCommunicator(
      ConnectSharedMemory({.rank = rank,
                           .size = size,
                           .rendezvous = rendezvous,
                           .timeout = std::chrono::milliseconds(
                               static_cast<int64_t>(timeout_s * 1000))}),
      std::move(across));
}

}  // namespace

void BindCommunicators(nb::module_& module) {
  nb::class_<Communicator>(module, "Communicator")
      .def_prop_ro(
          "name",
          [](const Communicator& ranks) { return std::string(ranks.name()); })
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size);
  module.def("single_communicator",
             []() -> CommunicatorPtr { return MakeSingleCommunicator(); });
  module.def("connect_node", &ConnectNode, Unlocked());
  module.def("connect_nodes", &ConnectNodes);
}

}  // namespace muonstore::python
