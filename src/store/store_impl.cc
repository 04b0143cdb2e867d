#include "src/store/store_impl.h"

#include <algorithm>
#include <utility>

#include "muonstore/error.h"
#include "src/base/log.h"
#include "src/base/str.h"
#include "src/store/agreement.h"

namespace muonstore {
namespace {

// The names that begin most like `name`, to help with a typing error.
std::string SimilarNames(const std::map<std::string_view, int32_t>& index,
                         std::string_view name) {
  std::vector<std::pair<size_t, std::string_view>> names;
  for (const auto& [known, unused] : index) {
    const auto end =
        std::mismatch(known.begin(), known.end(), name.begin(), name.end());
    names.emplace_back(end.first - known.begin(), known);
  }
  std::stable_sort(
      names.begin(), names.end(),
      [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> similar;
  similar.reserve(names.size());
  for (const auto& [prefix, known] : names) similar.emplace_back(known);
  return JoinNames(similar, 3);
}

void LogPinning(const Arena& arena) {
  const PinReport& report = arena.pin_report();
  if (report.asked == Pinning::kOff || report.shortfall.empty()) return;
  Log(LogLevel::kWarning,
      StrCat(arena.name(), ": ", report.pinned_bytes, " of ",
             report.total_bytes, " bytes are page-locked: ", report.shortfall));
}

}  // namespace

StateStore::Impl::Impl(std::vector<ParameterSpec> parameters_in,
                       Partitioning partitioning_in, StoreOptions options_in)
    : parameters(std::move(parameters_in)),
      partitioning(std::move(partitioning_in)),
      options(std::move(options_in)),
      communicator(options.communicator != nullptr ? options.communicator
                                                   : MakeSingleCommunicator()),
      leases(parameters) {
  const std::optional<Error> error = Caught([this] {
    RequireStorable(parameters, partitioning);
    if (partitioning.num_ranks() != communicator->size()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the partitioning is for another number of ranks than the "
                  "communicator has",
                  {.expected = StrCat(communicator->size(), " ranks"),
                   .found = StrCat(partitioning.num_ranks())});
    }
    options.tiers = WithDefaultTiers(options.tiers, communicator->size());
    RequireFits();
  });
  RequireAgreement(*communicator, "the store", error,
                   error.has_value() ? 0 : digest());
  Allocate();
}

StateStore::Impl::~Impl() {
  try {
    Release();
  } catch (const std::exception&) {
    // Close reports what goes wrong; here a peer may be gone.
  }
}

void StateStore::Impl::Release() {
  if (!segments.has_value()) return;
  for (Arena* arena : segments->arenas()) communicator->Withdraw(*arena);
  segments.reset();
}

void StateStore::Impl::RequireFits() const {
  uint64_t total = 0;
  std::map<const Tier*, uint64_t> by_tier;
  for (const ArenaPlan& plan : PlanOwnArenas()) {
    const uint64_t bytes = plan.tier->ArenaBytes(plan.arena);
    total += bytes;
    by_tier[plan.tier.get()] += bytes;
  }
  if (options.max_bytes != 0 && total > options.max_bytes) {
    throw Error(ErrorCode::kResourceExhausted,
                "this rank's state exceeds StoreOptions::max_bytes; "
                "StateStore::Estimate says what takes how much",
                {.expected = StrCat("at most ", options.max_bytes, " bytes"),
                 .found = StrCat(total)});
  }
  for (const auto& [tier, bytes] : by_tier) {
    if (bytes > tier->available_bytes()) {
      throw Error(ErrorCode::kResourceExhausted,
                  StrCat("the ", tier->name(),
                         " tier has too little room for this rank's state; "
                         "use more ranks or another tier"),
                  {.expected = StrCat("at most ", tier->available_bytes(),
                                      " bytes available"),
                   .found = StrCat(bytes)});
    }
  }
}

int64_t StateStore::Impl::digest() const {
  Digest digest;
  digest.Add(int64_t{partitioning.num_ranks()});
  digest.Add(int64_t{partitioning.stage()});
  for (const ParameterSpec& parameter : parameters) {
    digest.Add(parameter.name)
        .Add(parameter.shape.ToString())
        .Add(parameter.layout.ToString())
        .Add(int64_t{parameter.group})
        .Add(static_cast<int64_t>(parameter.optimizer))
        .Add(static_cast<int64_t>(parameter.weight_dtype));
  }
  for (const FlatGroup& group : partitioning.groups()) {
    digest.Add(group.partition_elements);
    for (const int32_t index : group.parameters) digest.Add(int64_t{index});
    for (const int64_t offset : group.offsets) digest.Add(offset);
  }
  // Arenas are published together; which tiers they are of is a rank's matter.
  for (const ArenaPlan& plan : PlanOwnArenas()) {
    digest.Add(plan.kind).Add(int64_t{plan.tier->addressable()});
    for (const int32_t group : plan.flat_groups) digest.Add(int64_t{group});
  }
  digest.Add(static_cast<int64_t>(options.max_snapshot_bytes))
      .Add(int64_t{options.reserve_snapshot_memory});
  return digest.value();
}

std::vector<ArenaPlan> StateStore::Impl::PlanOwnArenas() const {
  return PlanArenas(parameters, partitioning, options.tiers);
}

void StateStore::Impl::Allocate() {
  num_flat_groups_ =
      std::max(1, static_cast<int32_t>(partitioning.groups().size()));
  int32_t num_groups = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto parameter = static_cast<int32_t>(i);
    index_.emplace(parameters[i].name, parameter);
    num_groups = std::max(num_groups, parameters[i].group + 1);
    std::vector<Fragment>& local = local_fragments_.emplace_back();
    for (const Fragment& fragment : partitioning.fragments(parameter)) {
      if (rank_of(fragment) == communicator->rank()) local.push_back(fragment);
    }
  }
  record.group_steps.assign(static_cast<size_t>(num_groups), 0);
  const std::optional<Error> error =
      Caught([this] { segments.emplace(PlanOwnArenas(), num_flat_groups_); });
  RequireAgreement(*communicator, "allocating the store", error, 0);
  for (Arena* arena : segments->arenas()) {
    communicator->Publish(*arena);
    LogPinning(*arena);
  }
  if (options.reserve_snapshot_memory) MakeSpares();
}

void StateStore::Impl::RequireUsable() const {
  const std::lock_guard lock(state_mutex_);
  if (!unusable_.empty()) {
    throw Error(ErrorCode::kUnavailable, unusable_);
  }
}

void StateStore::Impl::Poison(std::string_view reason) {
  const std::lock_guard lock(state_mutex_);
  if (poisoned_) return;
  poisoned_ = true;
  unusable_ = StrCat(
      "the store is poisoned: a fault in the middle of an update may have left "
      "it torn; resume from the last checkpoint. The fault: ",
      reason);
}

bool StateStore::Impl::poisoned() const {
  const std::lock_guard lock(state_mutex_);
  return poisoned_;
}

void StateStore::Impl::Close() {
  if (!segments.has_value()) return;
  const std::optional<Error> error = Caught([this] {
    leases.RequireNone("Close");
    leases.RequireNoSnapshot("Close");
  });
  RequireAgreement(*communicator, "closing the store", error, 0);
  {
    const std::lock_guard lock(state_mutex_);
    if (unusable_.empty()) unusable_ = "the store is closed";
  }
  Release();
}

int32_t StateStore::Impl::Find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    throw Error(
        ErrorCode::kNotFound, "no parameter has this name",
        {.tensor = std::string(name), .expected = SimilarNames(index_, name)});
  }
  return found->second;
}

std::string_view StateStore::Impl::RequireKind(int32_t parameter,
                                               const StateKind& kind) const {
  const ParameterSpec& spec = parameters[static_cast<size_t>(parameter)];
  const StateKind canonical = CanonicalStateKind(kind);
  const size_t index = StoreKindIndex(canonical);
  if (index < kStoreKinds.size() && HasKind(spec.optimizer, canonical)) {
    return kStoreKinds[index];
  }
  throw Error(
      ErrorCode::kNotFound,
      StrCat("the store holds no such state of a parameter whose optimizer is ",
             OptimizerName(spec.optimizer)),
      {.tensor = TensorKey{spec.name, kind}.ToString()});
}

DType StateStore::Impl::dtype(int32_t parameter, std::string_view kind) const {
  return StoreDType(parameters[static_cast<size_t>(parameter)], kind);
}

TensorKey StateStore::Impl::key(int32_t parameter,
                                std::string_view kind) const {
  return {parameters[static_cast<size_t>(parameter)].name, std::string(kind)};
}

}  // namespace muonstore
