// The suite of communicators as operators that Python calls on each rank, with
// a process group that it made.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include "muonstore/c10d.h"
#include "tests/conformance/check.h"
#include "tests/conformance/communicator_checks.h"
#include "tests/conformance/hierarchical_check.h"

namespace muonstore {
namespace {

using conformance::CommunicatorCheck;
using std::chrono::milliseconds;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

constexpr int32_t kRanksOfNode = 2;
// Some of gloo's ranks hear of a death by their timeout alone.
constexpr milliseconds kLongestTimeout{5'000};

std::vector<CommunicatorCheck> AllChecks() {
  std::vector<CommunicatorCheck> checks = conformance::WorkingChecks();
  for (const CommunicatorCheck& check : conformance::FaultChecks()) {
    checks.push_back(check);
  }
  return checks;
}

// "name/smallest number of ranks/what becomes of the last".
std::vector<std::string> ListChecks() {
  std::vector<std::string> list;
  for (const CommunicatorCheck& check : AllChecks()) {
    list.push_back(check.name + "/" + std::to_string(check.min_ranks) + "/" +
                   std::to_string(static_cast<int>(check.last_rank)));
  }
  return list;
}

std::unique_ptr<Communicator> Across(const Group& group, milliseconds timeout) {
  return MakeC10dCommunicator(group,
                              {.timeout = std::min(timeout, kLongestTimeout)});
}

std::unique_ptr<Communicator> Inside(const Group& group,
                                     const std::string& rendezvous,
                                     milliseconds timeout) {
  const int32_t node = group->getRank() / kRanksOfNode;
  return ConnectSharedMemory(
      {.rank = group->getRank() % kRanksOfNode,
       .size = std::min(kRanksOfNode, group->getSize() - node * kRanksOfNode),
       .rendezvous = rendezvous + "/" + std::to_string(node),
       .timeout = std::min(timeout, kLongestTimeout)});
}

// Over the group alone with an empty rendezvous, else hierarchical.
void RunCheck(const Group& group, const std::string& name,
              const std::string& rendezvous) {
  const auto checks = AllChecks();
  const auto check = std::ranges::find(checks, name, &CommunicatorCheck::name);
  conformance::CheckThat(check != checks.end(), "no such check");
  check->run([&](milliseconds timeout) {
    auto across = Across(group, timeout);
    return rendezvous.empty()
               ? std::move(across)
               : MakeHierarchicalCommunicator(
                     Inside(group, rendezvous, timeout), std::move(across));
  });
}

void CheckBytesStayOnTheNode(const Group& group,
                             const std::string& rendezvous) {
  conformance::CheckBytesStayOnTheNode(
      Inside(group, rendezvous, kLongestTimeout),
      Across(group, kLongestTimeout), kRanksOfNode);
}

TORCH_LIBRARY(muonstore_conformance, library) {
  library.def("list_checks", &ListChecks);
  library.def("run_check", &RunCheck);
  library.def("check_bytes_stay_on_the_node", &CheckBytesStayOnTheNode);
}

}  // namespace
}  // namespace muonstore
