#include "tools/ckpt_inspect/state_totals.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

namespace muonstore::tools {
namespace {

size_t KindRank(const StateKind& kind) {
  static constexpr std::array<std::string_view, 6> kOrder = {
      kMaster, kMomentum, kExpAvg, kExpAvgSq, kWeight, kBuffer};
  return static_cast<size_t>(std::find(kOrder.begin(), kOrder.end(), kind) -
                             kOrder.begin());
}

}  // namespace

std::vector<StateTotal> StateTotals(const Checkpoint& checkpoint) {
  std::map<std::tuple<size_t, StateKind, DType>, StateTotal> totals;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const StateKind& kind = tensor.key.kind;
    StateTotal& total = totals[{KindRank(kind), kind, tensor.dtype}];
    total.kind = kind;
    total.dtype = tensor.dtype;
    ++total.num_tensors;
    total.num_elements += tensor.shape.num_elements();
    total.stored_bytes += tensor.stored_bytes;
  }
  std::vector<StateTotal> out;
  out.reserve(totals.size());
  for (auto& [key, total] : totals) out.push_back(std::move(total));
  return out;
}

}  // namespace muonstore::tools
