// An outside program: opens a checkpoint through the installed headers, counts
// what it holds, reads one value, and cuts its parameters for other ranks.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/open.h"
#include "muonstore/partitioning.h"

namespace {

std::vector<muonstore::ParameterSpec> Parameters(
    const muonstore::Checkpoint& checkpoint) {
  std::vector<muonstore::ParameterSpec> specs;
  for (const muonstore::CheckpointTensor& tensor : checkpoint.tensors()) {
    if (tensor.key.kind != muonstore::kMaster) continue;
    muonstore::ParameterSpec spec;
    spec.name = tensor.key.parameter;
    spec.shape = tensor.shape;
    spec.group = tensor.group;
    spec.optimizer = tensor.optimizer;
    specs.push_back(spec);
  }
  return specs;
}

int64_t CountTensors(const muonstore::Checkpoint& checkpoint,
                     std::string_view kind) {
  int64_t count = 0;
  for (const muonstore::CheckpointTensor& tensor : checkpoint.tensors()) {
    if (tensor.key.kind == kind) ++count;
  }
  return count;
}

// Elements in the pieces of a stage-3 cut over four ranks: each one once.
int64_t ElementsAfterCut(const std::vector<muonstore::ParameterSpec>& specs) {
  muonstore::ZeroRule rule;
  rule.stage = 3;
  rule.num_ranks = 4;
  const auto cut = muonstore::Partitioning::Build(specs, rule);
  int64_t num_elements = 0;
  for (int32_t i = 0; i < cut.num_parameters(); ++i) {
    for (const muonstore::Fragment& piece : cut.fragments(i)) {
      num_elements += piece.num_elements();
    }
  }
  return num_elements;
}

int Run(const std::string& path) {
  const auto checkpoint =
      muonstore::OpenCheckpoint(muonstore::PosixFileSystem(), path);
  const auto momentum = muonstore::FindTensor(
      *checkpoint, {"odd.weight", std::string(muonstore::kMomentum)});
  if (!momentum ||
      muonstore::ReadTensorF32(*checkpoint, *momentum, {0, 91}).size() != 91) {
    return 1;
  }
  const auto specs = Parameters(*checkpoint);
  std::printf(
      "%lld masters, %lld momenta, %lld parameters on %d ranks\n",
      static_cast<long long>(specs.size()),
      static_cast<long long>(CountTensors(*checkpoint, muonstore::kMomentum)),
      static_cast<long long>(ElementsAfterCut(specs)),
      checkpoint->info().num_ranks);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  try {
    return Run(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
