// The suite of communicators over the one of the Python package, as a module
// that each rank imports.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "python/src/group_communicator.h"
#include "tests/conformance/check.h"
#include "tests/conformance/communicator_checks.h"

namespace muonstore {
namespace {

namespace nb = nanobind;
using conformance::CommunicatorCheck;

// Some of gloo's ranks hear of a death by their timeout alone.
constexpr std::chrono::milliseconds kLongestTimeout{5'000};

std::vector<CommunicatorCheck> AllChecks() {
  std::vector<CommunicatorCheck> checks = conformance::WorkingChecks();
  std::ranges::copy(conformance::FaultChecks(), std::back_inserter(checks));
  return checks;
}

// Name, smallest number of ranks, what becomes of the last.
std::vector<std::tuple<std::string, int, int>> ListChecks() {
  std::vector<std::tuple<std::string, int, int>> list;
  for (const CommunicatorCheck& check : AllChecks()) {
    list.emplace_back(check.name, check.min_ranks,
                      static_cast<int>(check.last_rank));
  }
  return list;
}

// `connect`: timeout in seconds -> GroupCalls.
void RunCheck(const std::string& name, const nb::object& connect) {
  const auto checks = AllChecks();
  const auto check = std::ranges::find(checks, name, &CommunicatorCheck::name);
  conformance::CheckThat(check != checks.end(), "no such check");
  const nb::gil_scoped_release release;
  check->run([&](std::chrono::milliseconds timeout) {
    const nb::gil_scoped_acquire gil;
    const auto shorter = std::min(timeout, kLongestTimeout);
    return python::MakeGroupCommunicator(
        connect(std::chrono::duration<double>(shorter).count()));
  });
}

}  // namespace
}  // namespace muonstore

NB_MODULE(group_conformance, module) {
  module.def("list_checks", &muonstore::ListChecks);
  module.def("run_check", &muonstore::RunCheck);
}
