// Random runs of the executor as an operator that Python calls on each rank.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include "muonstore/c10d.h"
#include "tests/executor/random_run.h"

namespace muonstore {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

void Append(const void* data, size_t bytes, std::string& out) {
  out.append(static_cast<const char*>(data), bytes);
}

// Every bit that a run leaves.
at::Tensor BytesOf(const testutil::RunResult& result) {
  std::string bytes;
  for (const auto& [key, state] : result.state) {
    bytes += key + "\n";
    Append(state.data(), state.size(), bytes);
  }
  for (const double norm : result.norms) Append(&norm, sizeof(norm), bytes);
  for (const double factor : result.clip_factors) {
    Append(&factor, sizeof(factor), bytes);
  }
  for (const bool overflow : result.overflows) bytes += overflow ? "y" : "n";
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

at::Tensor RunAlone(int64_t seed) {
  const auto run = testutil::MakeRandomRun(static_cast<uint64_t>(seed));
  return BytesOf(testutil::Execute(run, {}, MakeSingleCommunicator()));
}

at::Tensor RunOverGroup(const Group& group, int64_t seed, int64_t stage) {
  const auto run = testutil::MakeRandomRun(static_cast<uint64_t>(seed));
  return BytesOf(testutil::Execute(
      run, {.stage = static_cast<int32_t>(stage), .in_chunks = true},
      MakeC10dCommunicator(group)));
}

TORCH_LIBRARY(muonstore_executor_test, library) {
  library.def("run_alone", &RunAlone);
  library.def("run_over_group", &RunOverGroup);
}

}  // namespace
}  // namespace muonstore
