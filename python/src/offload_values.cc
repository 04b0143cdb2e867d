// What goes between a model and the store: weights and state of parameters.
#include <algorithm>
#include <cstring>

#include "muonstore/error.h"
#include "muonstore/state_kind.h"
#include "python/src/offload_optimizer.h"

namespace muonstore::python {
namespace {

// Calls visit(first element of the own range, piece) for all of a lease.
template <typename AnyLease, typename Visit>
void ForEachPiece(const AnyLease& lease, const ElementRange& own,
                  const Visit& visit) {
  for (const auto& piece : lease.pieces()) {
    visit(piece.fragment.tensor_offset - own.begin, piece.data);
  }
}

}  // namespace

bool OffloadOptimizer::HasWeights(int32_t parameter,
                                  const Values& weights) const {
  RequireSize(parameter, weights.data.size(), weights.dtype);
  const auto held = store();
  const ReadLease stored = held->Read(name(parameter), StateKind(kWeight));
  if (stored.dtype() != weights.dtype) {
    throw Error(ErrorCode::kInvalidArgument,
                "the parameter has another dtype than it had",
                {.tensor = name(parameter),
                 .expected = std::string(DTypeName(stored.dtype())),
                 .found = std::string(DTypeName(weights.dtype))});
  }
  const int64_t begin = own_range(parameter).begin;
  return std::ranges::all_of(stored.pieces(), [&](const auto& piece) {
    const auto first = static_cast<size_t>(
        (piece.fragment.tensor_offset - begin) * SizeBytes(weights.dtype));
    return piece.data.empty() ||
           std::memcmp(piece.data.data(), &weights.data[first],
                       piece.data.size()) == 0;
  });
}

void OffloadOptimizer::TakeWeights(int32_t parameter, const Values& weights) {
  RequireSize(parameter, weights.data.size(), weights.dtype);
  const ElementRange own = own_range(parameter);
  const auto size = static_cast<size_t>(SizeBytes(weights.dtype));
  const auto held = store();
  WriteLease masters = held->Write(name(parameter), StateKind(kMaster));
  WriteLease stored = held->Write(name(parameter), StateKind(kWeight));
  const auto master_pieces = masters.pieces();
  const auto weight_pieces = stored.pieces();
  for (size_t k = 0; k < weight_pieces.size(); ++k) {
    const std::span<std::byte> old = weight_pieces[k].data;
    const auto first = static_cast<size_t>(
        weight_pieces[k].fragment.tensor_offset - own.begin);
    const auto now = weights.data.subspan(first * size, old.size());
    auto* master = reinterpret_cast<float*>(master_pieces[k].data.data());
    for (size_t at = 0; at < old.size(); at += size) {
      if (std::memcmp(&old[at], &now[at], size) == 0) continue;
      ConvertToF32(weights.dtype, now.subspan(at, size),
                   {master + at / size, 1});
    }
    std::ranges::copy(now, old.begin());
  }
  masters.Commit();
  stored.Commit();
}

void OffloadOptimizer::GiveWeights(std::span<const Target> targets) {
  for (const Target& target : targets) {
    RequireSize(
        target.parameter, target.data.size(),
        parameters_.at(static_cast<size_t>(target.parameter)).weight_dtype);
  }
  if (placement_ == Placement::kReplicated && communicator_->size() > 1) {
    GatherWeights(targets);
  } else {
    CopyOwnWeights(targets);
  }
  owes_weights_ = false;
}

void OffloadOptimizer::CopyOwnWeights(std::span<const Target> targets) {
  for (const Target& target : targets) {
    ReadState(target.parameter, StateKind(kWeight), target.data);
  }
}

// One exchange: this rank's pieces go to all ranks, and all ranks' pieces to
// their places. Both sides go by parameter, then by element.
void OffloadOptimizer::GatherWeights(std::span<const Target> targets) {
  const auto held = store();
  std::vector<ReadLease> leases;
  ExchangePlan plan;
  const Partitioning& cut = held->partitioning();
  const auto num_groups = static_cast<int32_t>(cut.groups().size());
  for (const Target& target : targets) {
    leases.push_back(held->Read(name(target.parameter), StateKind(kWeight)));
    for (const auto& piece : leases.back().pieces()) {
      for (int32_t peer = 0; peer < communicator_->size(); ++peer) {
        plan.sends.push_back({peer, piece.data});
      }
    }
    const auto size = static_cast<size_t>(SizeBytes(leases.back().dtype()));
    for (const Fragment& from : cut.fragments(target.parameter)) {
      plan.receives.push_back(
          {from.segment / num_groups,
           target.data.subspan(static_cast<size_t>(from.tensor_offset) * size,
                               static_cast<size_t>(from.length) * size)});
    }
  }
  communicator_->Exchange(plan)->Wait();
}

void OffloadOptimizer::ReadState(int32_t parameter, const StateKind& kind,
                                 std::span<std::byte> out) {
  const auto held = store();
  if (placement_ == Placement::kReplicated && communicator_->size() > 1) {
    const GatheredTensor whole = held->Gather(name(parameter), kind);
    RequireSize(parameter, out.size(), whole.dtype);
    std::ranges::copy(whole.data, out.begin());
    return;
  }
  const ReadLease lease = held->Read(name(parameter), kind);
  RequireSize(parameter, out.size(), lease.dtype());
  const auto size = static_cast<size_t>(SizeBytes(lease.dtype()));
  ForEachPiece(lease, own_range(parameter),
               [&](int64_t first, std::span<const std::byte> data) {
                 const auto at = static_cast<size_t>(first) * size;
                 std::ranges::copy(data,
                                   out.begin() + static_cast<ptrdiff_t>(at));
               });
}

void OffloadOptimizer::WriteState(int32_t parameter, const StateKind& kind,
                                  const Values& values) {
  RequireSize(parameter, values.data.size(), values.dtype);
  std::vector<float> floats(static_cast<size_t>(own_range(parameter).size()));
  ConvertToF32(values.dtype, values.data, floats);
  WritePieces(parameter, kind, floats);
}

void OffloadOptimizer::WritePieces(int32_t parameter, const StateKind& kind,
                                   std::span<const float> values) {
  const auto held = store();
  WriteLease lease = held->Write(name(parameter), kind);
  const auto size = static_cast<size_t>(SizeBytes(lease.dtype()));
  ForEachPiece(lease, own_range(parameter),
               [&](int64_t first, std::span<std::byte> data) {
                 ConvertFromF32(values.subspan(static_cast<size_t>(first),
                                               data.size() / size),
                                lease.dtype(), data);
               });
  lease.Commit();
}

}  // namespace muonstore::python
