#include "python/src/offload_optimizer.h"

#include <unistd.h>

#include <algorithm>
#include <array>
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

}  // namespace

OffloadOptimizer::OffloadOptimizer(std::vector<ParameterSpec> parameters,
                                   const OffloadOptions& options)
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

// Never waits: the thread that closes, or the one that holds, may need the GIL.
std::shared_lock<std::shared_mutex> OffloadOptimizer::Hold() const {
  RequireProcess();
  std::shared_lock lock(in_use_, std::try_to_lock);
  if (!lock.owns_lock() || store_ == nullptr) {
    throw Error(ErrorCode::kUnavailable, "the optimizer is closed");
  }
  return lock;
}

Held<StateStore> OffloadOptimizer::store() const {
  return {Hold(), store_.get()};
}

Held<OffloadExecutor> OffloadOptimizer::executor() const {
  return {Hold(), executor_.get()};
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
  const auto held = Hold();
  std::array<int64_t, 1> all = {bits};
  communicator_->AllReduce(all, ReduceOp::kBitOr);
  return all[0];
}

void OffloadOptimizer::Accumulate(int32_t parameter, const Values& gradient) {
  RequireSize(parameter, gradient.data.size(), gradient.dtype);
  if (gradient.data.empty()) return;
  executor()->Accumulate(name(parameter),
                         {.dtype = gradient.dtype,
                          .data = gradient.data,
                          .first_element = own_range(parameter).begin});
}

void OffloadOptimizer::AccumulateZero(int32_t parameter) {
  executor()->AccumulateZero(name(parameter));
}

void OffloadOptimizer::DiscardGradients() { executor()->DiscardGradients(); }

void OffloadOptimizer::SetGroup(int32_t index,
                                const GroupHyperParameters& group) {
  executor()->group(index) = group;
}

void OffloadOptimizer::set_max_norm(double max_norm) {
  executor()->set_max_norm(max_norm);
}

StepReport OffloadOptimizer::Step(const StepOptions& options) {
  const StepReport report = executor()->Step(options);
  owes_weights_ |= !report.overflow;
  return report;
}

void OffloadOptimizer::RefuseStep() {
  DiscardGradients();
  try {
    executor()->Step({});
  } catch (const Error&) {
    // The caller has the cause.
  }
}

std::vector<int64_t> OffloadOptimizer::group_steps() const {
  return store()->record().group_steps;
}

void OffloadOptimizer::set_group_steps(const std::vector<int64_t>& steps) {
  store()->record().group_steps = steps;
}

SaveHandle OffloadOptimizer::Save(const std::string& root,
                                  const std::string& tag, SaveOptions options) {
  const auto held = executor();
  for (int32_t i = 0; i < num_groups_; ++i) {
    options.groups.push_back(held->group(i));
  }
  // Making one is collective.
  const bool is_other = saver_ == nullptr || saver_root_ != root;
  if (OrRanks(is_other ? 1 : 0) != 0) {
    saver_.reset();
    saver_ = std::make_unique<Saver>(*store_, root);
    saver_root_ = root;
  }
  return saver_->Save(tag, options);
}

ResumeReport OffloadOptimizer::Resume(const std::string& root,
                                      const ResumeOptions& options) {
  const auto held = executor();
  held->DiscardGradients();
  ResumeReport report = muonstore::Resume(*store_, root, options);
  owes_weights_ = true;
  return report;
}

void OffloadOptimizer::Close() {
  RequireProcess();
  const std::unique_lock lock(in_use_, std::try_to_lock);
  if (!lock.owns_lock()) {
    throw Error(ErrorCode::kUnavailable,
                "another thread is using the optimizer, which stays open; "
                "close it when that has ended");
  }
  if (store_ == nullptr) return;
  saver_.reset();
  executor_.reset();
  const std::unique_ptr<StateStore> store = std::move(store_);
  store->Close();
}

}  // namespace muonstore::python
