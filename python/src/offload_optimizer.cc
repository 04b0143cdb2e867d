#include "python/src/offload_optimizer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "muonstore/error.h"
#include "muonstore/state_kind.h"
#include "src/base/str.h"

namespace muonstore::python {
namespace {

Partitioning CutOf(const std::vector<ParameterSpec>& parameters,
                   const OffloadOptions& options) {
  const bool shards = options.placement == Placement::kRowShards;
  return Partitioning::Build(parameters,
                             {.stage = shards ? 3 : 2,
                              .num_ranks = options.communicator->size(),
                              .muon_order = MuonOrder::kAsGiven,
                              .whole_rows = shards});
}

// What FSDP2 leaves on a rank; all of it where nothing is cut by rows.
ElementRange OwnRange(const Partitioning& cut, int32_t parameter,
                      int64_t num_elements, int32_t rank) {
  if (!cut.whole_rows()) return {0, num_elements};
  const int64_t piece = cut.piece_elements(parameter);
  return {std::min(rank * piece, num_elements),
          std::min((rank + 1) * piece, num_elements)};
}

// Calls visit(first element of the own range, piece) for all of a lease.
template <typename AnyLease, typename Visit>
void ForEachPiece(const AnyLease& lease, const ElementRange& own,
                  const Visit& visit) {
  for (const auto& piece : lease.pieces()) {
    visit(piece.fragment.tensor_offset - own.begin, piece.data);
  }
}

}  // namespace

OffloadOptimizer::OffloadOptimizer(std::vector<ParameterSpec> parameters,
                                   OffloadOptions options)
    : process_(getpid()),
      placement_(options.placement),
      communicator_(options.communicator),
      parameters_(std::move(parameters)),
      num_groups_(static_cast<int32_t>(options.executor.groups.size())) {
  const Partitioning cut = CutOf(parameters_, options);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    own_ranges_.push_back(OwnRange(cut, static_cast<int32_t>(i),
                                   parameters_[i].shape.num_elements(),
                                   communicator_->rank()));
  }
  const StoreOptions store_options = {
      .communicator = communicator_,
      .tiers = options.tiers,
      .max_snapshot_bytes = options.max_snapshot_bytes};
  for (const StoreEstimate::Kind& kind :
       StateStore::Estimate(parameters_, cut, communicator_->rank(),
                            store_options)
           .kinds) {
    const bool swapped = kind.tier == "nvme";
    (swapped ? swapped_bytes_ : memory_bytes_) += kind.bytes;
  }
  store_ = std::make_unique<StateStore>(parameters_, cut, store_options);
  store_->record().convention = options.convention;
  executor_ = std::make_unique<OffloadExecutor>(*store_, options.executor);
}

OffloadOptimizer::~OffloadOptimizer() {
  if (getpid() == process_) return;
  // Their threads are the parent's: nothing here could be ended.
  static_cast<void>(saver_.release());
  static_cast<void>(executor_.release());
  static_cast<void>(store_.release());
}

void OffloadOptimizer::RequireProcess() const {
  if (getpid() != process_) {
    throw Error(ErrorCode::kUnavailable,
                "this process was forked off after the optimizer was made, and "
                "has none of its threads; make it in the process that trains, "
                "or start workers by spawn",
                {.expected = StrCat("process ", process_),
                 .found = StrCat("process ", getpid())});
  }
}

StateStore& OffloadOptimizer::store() const {
  RequireProcess();
  if (store_ == nullptr) {
    throw Error(ErrorCode::kUnavailable, "the optimizer is closed");
  }
  return *store_;
}

OffloadExecutor& OffloadOptimizer::executor() const {
  static_cast<void>(store());
  return *executor_;
}

const std::string& OffloadOptimizer::name(int32_t parameter) const {
  return parameters_.at(static_cast<size_t>(parameter)).name;
}

ElementRange OffloadOptimizer::own_range(int32_t parameter) const {
  return own_ranges_.at(static_cast<size_t>(parameter));
}

void OffloadOptimizer::RequireSize(int32_t parameter, size_t size_bytes,
                                   DType dtype) const {
  const int64_t elements = own_range(parameter).size();
  if (size_bytes != static_cast<size_t>(elements * SizeBytes(dtype))) {
    throw Error(ErrorCode::kInvalidArgument,
                "these values are not this rank's part of the parameter",
                {.tensor = name(parameter),
                 .expected = StrCat(elements, " elements"),
                 .found = StrCat(size_bytes, " bytes of ", DTypeName(dtype))});
  }
}

int64_t OffloadOptimizer::OrRanks(int64_t bits) {
  static_cast<void>(store());
  std::array<int64_t, 1> all = {bits};
  communicator_->AllReduce(all, ReduceOp::kBitOr);
  return all[0];
}

void OffloadOptimizer::TakeWeights(int32_t parameter, const Values& weights) {
  RequireSize(parameter, weights.data.size(), weights.dtype);
  const ElementRange own = own_range(parameter);
  const auto size = static_cast<size_t>(SizeBytes(weights.dtype));
  WriteLease masters = store().Write(name(parameter), StateKind(kMaster));
  WriteLease stored = store().Write(name(parameter), StateKind(kWeight));
  if (stored.dtype() != weights.dtype) {
    throw Error(ErrorCode::kInvalidArgument,
                "the parameter has another dtype than it had",
                {.tensor = name(parameter),
                 .expected = std::string(DTypeName(stored.dtype())),
                 .found = std::string(DTypeName(weights.dtype))});
  }
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
}

void OffloadOptimizer::CopyOwnWeights(std::span<const Target> targets) {
  for (const Target& target : targets) {
    ReadState(target.parameter, StateKind(kWeight), target.data);
  }
}

// One exchange: this rank's pieces go to all ranks, and all ranks' pieces to
// their places. Both sides go by parameter, then by element.
void OffloadOptimizer::GatherWeights(std::span<const Target> targets) {
  std::vector<ReadLease> leases;
  ExchangePlan plan;
  const Partitioning& cut = store().partitioning();
  const auto num_groups = static_cast<int32_t>(cut.groups().size());
  for (const Target& target : targets) {
    leases.push_back(store().Read(name(target.parameter), StateKind(kWeight)));
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

void OffloadOptimizer::Accumulate(int32_t parameter, const Values& gradient) {
  RequireSize(parameter, gradient.data.size(), gradient.dtype);
  if (gradient.data.empty()) return;
  executor().Accumulate(name(parameter),
                        {.dtype = gradient.dtype,
                         .data = gradient.data,
                         .first_element = own_range(parameter).begin});
}

void OffloadOptimizer::AccumulateZero(int32_t parameter) {
  executor().AccumulateZero(name(parameter));
}

void OffloadOptimizer::DiscardGradients() { executor().DiscardGradients(); }

GroupHyperParameters& OffloadOptimizer::group(int32_t index) {
  return executor().group(index);
}

void OffloadOptimizer::set_max_norm(double max_norm) {
  executor().set_max_norm(max_norm);
}

StepReport OffloadOptimizer::Step(double loss_scale) {
  return executor().Step({.loss_scale = loss_scale});
}

void OffloadOptimizer::RefuseStep() {
  DiscardGradients();
  try {
    Step(1);
  } catch (const Error&) {
    // The caller has the cause.
  }
}

void OffloadOptimizer::ReadState(int32_t parameter, const StateKind& kind,
                                 std::span<std::byte> out) {
  if (placement_ == Placement::kReplicated && communicator_->size() > 1) {
    const GatheredTensor whole = store().Gather(name(parameter), kind);
    RequireSize(parameter, out.size(), whole.dtype);
    std::ranges::copy(whole.data, out.begin());
    return;
  }
  const ReadLease lease = store().Read(name(parameter), kind);
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
  WriteLease lease = store().Write(name(parameter), kind);
  const auto size = static_cast<size_t>(SizeBytes(lease.dtype()));
  ForEachPiece(lease, own_range(parameter),
               [&](int64_t first, std::span<std::byte> data) {
                 ConvertFromF32(values.subspan(static_cast<size_t>(first),
                                               data.size() / size),
                                lease.dtype(), data);
               });
  lease.Commit();
}

StoreRecord& OffloadOptimizer::record() { return store().record(); }

SaveHandle OffloadOptimizer::Save(const std::string& root,
                                  const std::string& tag, SaveOptions options) {
  for (int32_t i = 0; i < num_groups_; ++i) options.groups.push_back(group(i));
  if (saver_ == nullptr || saver_root_ != root) {
    saver_.reset();
    saver_ = std::make_unique<Saver>(store(), root);
    saver_root_ = root;
  }
  return saver_->Save(tag, options);
}

ResumeReport OffloadOptimizer::Resume(const std::string& root,
                                      const ResumeOptions& options) {
  executor().DiscardGradients();
  return muonstore::Resume(store(), root, options);
}

void OffloadOptimizer::Close() {
  RequireProcess();
  if (store_ == nullptr) return;
  saver_.reset();
  executor_.reset();
  const std::unique_ptr<StateStore> store = std::move(store_);
  store->Close();
}

}  // namespace muonstore::python
