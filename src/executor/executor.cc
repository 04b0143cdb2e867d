#include "muonstore/executor.h"

#include <algorithm>
#include <set>
#include <utility>

#include "muonstore/error.h"
#include "src/base/log.h"
#include "src/base/str.h"
#include "src/executor/device_plan.h"
#include "src/executor/executor_impl.h"
#include "src/executor/slices.h"
#include "src/store/agreement.h"
#include "src/tensor/training_dtype.h"

namespace muonstore {
namespace {

// Of gradients that are not in memory, at a time.
constexpr int64_t kEditElements = int64_t{1} << 20;

size_t NumGroups(const StateStore::Impl& store) {
  return store.record.group_steps.size();
}

void RequireChunk(const ParameterSpec& parameter, const GradientChunk& chunk) {
  RequireTrainingDType(chunk.dtype, ErrorCode::kUnsupported,
                       "gradients have another dtype than this",
                       parameter.name);
  if (chunk.parameter_shape.has_value() &&
      *chunk.parameter_shape != parameter.shape) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradient has another shape than its parameter",
                {.tensor = parameter.name,
                 .expected = parameter.shape.ToString(),
                 .found = chunk.parameter_shape->ToString()});
  }
  const auto element_bytes = static_cast<size_t>(SizeBytes(chunk.dtype));
  const auto elements = static_cast<int64_t>(chunk.data.size() / element_bytes);
  if (chunk.data.size() % element_bytes != 0 || chunk.first_element < 0 ||
      chunk.first_element > parameter.shape.num_elements() ||
      elements > parameter.shape.num_elements() - chunk.first_element) {
    throw Error(ErrorCode::kInvalidArgument,
                "the gradient chunk does not lie within the parameter",
                {.tensor = parameter.name,
                 .expected = StrCat("elements of [0, ",
                                    parameter.shape.num_elements(), ")"),
                 .found = StrCat(chunk.data.size(), " bytes of ",
                                 DTypeName(chunk.dtype), " from element ",
                                 chunk.first_element)});
  }
}

}  // namespace

OffloadExecutor::Impl::Impl(StateStore& store, ExecutorOptions options)
    : store_(store.impl()),
      options_(std::move(options)),
      device_(options_.device),
      ledger_(store_) {
  const std::optional<Error> error = Caught([this] { Build(); });
  Digest digest;
  if (!error.has_value()) {
    digest.Add(int64_t{options_.overlap})
        .Add(static_cast<int64_t>(options_.max_gather_bytes))
        .Add(static_cast<int64_t>(plan_.num_rounds))
        .Add(int64_t{plan_.overlap})
        .Add(DeviceKind(*device_))
        .Add(HyperParameterDigest())
        .Add(NewtonSchulzDigest());
  }
  RequireAgreement(*store_.communicator, "the executor", error, digest.value());
  pool_->Publish(*store_.communicator);
  staging_->Publish(*store_.communicator);
  LogBuffers();
  pipeline_ = std::make_unique<MuonPipeline>(
      PipelineParts{.parameters = store_.parameters,
                    .chunks = plan_,
                    .units = units_,
                    .device = *device_,
                    .communicator = *store_.communicator,
                    .gather_buffers = *pool_,
                    .device_buffers = std::move(device_buffers_)});
  store_.has_executor = true;
}

OffloadExecutor::Impl::~Impl() { Close(); }

void OffloadExecutor::Impl::RequireFree() const {
  store_.RequireUsable();
  if (store_.has_executor) {
    throw Error(ErrorCode::kInvalidArgument,
                "the store has an executor already; close that one first");
  }
  if (options_.groups.size() != NumGroups(store_)) {
    throw Error(ErrorCode::kInvalidArgument,
                "every param group of the store needs hyper-parameters",
                {.expected = StrCat(NumGroups(store_), " groups"),
                 .found = StrCat(options_.groups.size())});
  }
}

void OffloadExecutor::Impl::Build() {
  RequireFree();
  threads_ = std::make_unique<ThreadPool>(options_.num_threads);
  passes_ = std::make_unique<ElementPasses>(*threads_);
  if (device_ == nullptr) {
    device_ = MakeHostDevice(options_.newton_schulz, *threads_);
  }
  std::vector<MatrixTask> tasks = MakeMatrixTasks(
      store_.parameters, store_.partitioning, options_.newton_schulz);
  const ChunkPlanOptions chunk_options = {
      .num_ranks = store_.communicator->size(),
      .max_gather_bytes = options_.max_gather_bytes,
      .chunk_bytes =
          std::min(kDefaultChunkBytes,
                   MaxDeviceBatchBytes(*device_, tasks, store_.parameters,
                                       options_.overlap)),
      .overlap = options_.overlap,
      .in_place = device_->works_in_host_memory()};
  plan_ = PlanChunks(std::move(tasks), store_.parameters, chunk_options);
  units_ = PlanSwap(store_,
                    {.mode = options_.swap_mode,
                     .max_swap_bytes = options_.max_swap_bytes,
                     .in_place = chunk_options.in_place},
                    chunk_options, plan_);
  MakeBuffers();
  PrepareDevice();
}

void OffloadExecutor::Impl::PrepareDevice() {
  const auto rank = static_cast<size_t>(store_.communicator->rank());
  if (device_->works_in_host_memory() || plan_.chunks[rank].empty()) return;
  if (options_.buffer_pinning != Pinning::kOff) {
    registered_gather_ = device_->RegisterMemory(pool_->all_memory());
  }
  for (int32_t i = 0; i < DeviceBuffersNeeded(plan_.overlap); ++i) {
    device_buffers_.push_back(device_->Allocate(plan_.buffer_bytes));
  }
}

void OffloadExecutor::Impl::MakeBuffers() {
  // Peers read these buffers in place.
  Tier& tier = *store_.options.tiers.resident;
  pool_ = std::make_unique<BufferPool>(
      tier, BufferPoolOptions{
                .name = "gather buffers",
                .num_buffers = plan_.num_rounds > 0 ? plan_.num_buffers : 0,
                .buffer_bytes = plan_.buffer_bytes,
                .pinning = options_.buffer_pinning});
  staging_ = std::make_unique<BufferPool>(
      tier, BufferPoolOptions{.name = "staging buffers",
                              .num_buffers = units_.num_buffers,
                              .buffer_bytes = units_.buffer_bytes,
                              .pinning = options_.buffer_pinning});
  RegisterStaging();
}

void OffloadExecutor::Impl::RegisterStaging() {
  std::set<Tier*> tiers = {store_.options.tiers.rest.tier.get()};
  for (const auto& [kind, policy] : store_.options.tiers.kinds) {
    tiers.insert(policy.tier.get());
  }
  for (Tier* tier : tiers) {
    if (tier->addressable() || staging_->all_memory().empty()) continue;
    registered_.push_back(tier->RegisterMemory(staging_->all_memory()));
  }
}

void OffloadExecutor::Impl::LogBuffers() const {
  const auto log = [](std::string_view what, int32_t count, uint64_t bytes,
                      bool is_large, std::string_view option) {
    if (count == 0) return;
    Log(is_large ? LogLevel::kWarning : LogLevel::kInfo,
        StrCat(what, " buffers take ", count, " x ", bytes,
               " bytes: ExecutorOptions::", option, " limits them"));
  };
  if (plan_.num_rounds > 0) {
    log("gather", plan_.num_buffers, plan_.buffer_bytes,
        plan_.total_bytes() > kDefaultGatherBytes &&
            options_.max_gather_bytes == 0,
        "max_gather_bytes");
  }
  log("staging", units_.num_buffers, units_.buffer_bytes,
      units_.total_bytes() > kDefaultSwapBytes && options_.max_swap_bytes == 0,
      "max_swap_bytes");
  if (options_.overlap && !plan_.overlap && plan_.num_rounds > 0) {
    Log(LogLevel::kWarning,
        "the gather buffers' limit leaves no room for overlap");
  }
}

void OffloadExecutor::Impl::RequireOpen() const {
  store_.RequireUsable();
  if (pipeline_ == nullptr) {
    throw Error(ErrorCode::kUnavailable, "the executor is closed");
  }
}

GroupHyperParameters& OffloadExecutor::Impl::group(int32_t index) {
  if (index < 0 || static_cast<size_t>(index) >= options_.groups.size()) {
    throw Error(ErrorCode::kInvalidArgument, "no such param group",
                {.expected = StrCat("below ", options_.groups.size()),
                 .found = StrCat(index)});
  }
  return options_.groups[static_cast<size_t>(index)];
}

void OffloadExecutor::Impl::Accumulate(std::string_view name,
                                       const GradientChunk& chunk) {
  RequireOpen();
  const int32_t parameter = store_.Find(name);
  const ParameterSpec& spec = store_.parameters[static_cast<size_t>(parameter)];
  static_cast<void>(store_.RequireKind(parameter, StateKind(kGradient)));
  RequireChunk(spec, chunk);
  const int64_t element_bytes = SizeBytes(chunk.dtype);
  const auto elements = static_cast<int64_t>(chunk.data.size()) / element_bytes;
  const GradientLedger::Admitted admitted = ledger_.Admit(
      parameter, {chunk.first_element, chunk.first_element + elements});
  const AccumulateMode mode =
      admitted.first ? AccumulateMode::kSet : AccumulateMode::kAdd;
  for (const Fragment& at : admitted.fragments) {
    for (int64_t i = 0; i < at.count; ++i) {
      const int64_t source =
          at.tensor_offset + i * at.stride - chunk.first_element;
      Fold({.dtype = chunk.dtype,
            .mode = mode,
            .data = chunk.data.subspan(
                static_cast<size_t>(source * element_bytes),
                static_cast<size_t>(at.length * element_bytes))},
           {.flat_group = store_.flat_group_of(at),
            .first = at.segment_offset + i * at.length,
            .count = at.length});
    }
  }
}

void OffloadExecutor::Impl::Fold(const Folded& folded, const SegmentRun& run) {
  EditGradients(
      run, folded.mode == AccumulateMode::kAdd,
      [&](int64_t first, std::span<float> gradients) {
        const auto size = static_cast<size_t>(SizeBytes(folded.dtype));
        ForEachSlice(
            *threads_, static_cast<int64_t>(gradients.size()),
            [&](int64_t begin, int64_t count, int64_t) {
              const auto elements = static_cast<size_t>(count);
              AccumulateGradient(
                  folded.dtype,
                  folded.data.subspan(static_cast<size_t>(first + begin) * size,
                                      elements * size),
                  folded.mode,
                  gradients.subspan(static_cast<size_t>(begin), elements));
            });
      });
}

void OffloadExecutor::Impl::EditGradients(
    const SegmentRun& run, bool reads,
    const std::function<void(int64_t, std::span<float>)>& edit) {
  Segments& segments = *store_.segments;
  if (segments.addressable(kGradient, run.flat_group)) {
    edit(0, segments.f32(kGradient, run.flat_group)
                .subspan(static_cast<size_t>(run.first),
                         static_cast<size_t>(run.count)));
    return;
  }
  // What fails here may have changed a part of the sum.
  try {
    std::vector<float> part;
    for (int64_t first = 0; first < run.count; first += kEditElements) {
      part.resize(
          static_cast<size_t>(std::min(kEditElements, run.count - first)));
      const uint64_t offset =
          static_cast<uint64_t>(run.first + first) * sizeof(float);
      const auto bytes = std::as_writable_bytes(std::span(part));
      if (reads) {
        segments.Read(kGradient, run.flat_group, offset, bytes)->Wait();
      }
      edit(first, part);
      segments.Write(kGradient, run.flat_group, offset, bytes)->Wait();
    }
  } catch (const std::exception& error) {
    store_.Poison(error.what());
    throw;
  }
}

void OffloadExecutor::Impl::AccumulateZero(std::string_view name) {
  RequireOpen();
  const int32_t parameter = store_.Find(name);
  static_cast<void>(store_.RequireKind(parameter, StateKind(kGradient)));
  const int64_t elements =
      store_.parameters[static_cast<size_t>(parameter)].shape.num_elements();
  const GradientLedger::Admitted admitted =
      ledger_.Admit(parameter, {0, elements});
  if (!admitted.first) return;
  for (const Fragment& at : admitted.fragments) {
    EditGradients({.flat_group = store_.flat_group_of(at),
                   .first = at.segment_offset,
                   .count = at.num_elements()},
                  false, [](int64_t /*first*/, std::span<float> gradients) {
                    std::fill(gradients.begin(), gradients.end(), 0.0F);
                  });
  }
}

void OffloadExecutor::Impl::DiscardGradients() { ledger_.Clear(); }

void OffloadExecutor::Impl::Close() {
  if (pipeline_ == nullptr) return;
  pipeline_.reset();
  registered_gather_.reset();
  registered_.clear();
  staging_.reset();
  pool_.reset();
  store_.has_executor = false;
}

OffloadExecutor::OffloadExecutor(StateStore& store, ExecutorOptions options)
    : impl_(std::make_unique<Impl>(store, std::move(options))) {}

OffloadExecutor::~OffloadExecutor() = default;

GroupHyperParameters& OffloadExecutor::group(int32_t index) {
  return impl_->group(index);
}

void OffloadExecutor::set_max_norm(double max_norm) {
  impl_->set_max_norm(max_norm);
}

void OffloadExecutor::Accumulate(std::string_view name,
                                 const GradientChunk& chunk) {
  impl_->Accumulate(name, chunk);
}

void OffloadExecutor::AccumulateZero(std::string_view name) {
  impl_->AccumulateZero(name);
}

void OffloadExecutor::DiscardGradients() { impl_->DiscardGradients(); }

StepReport OffloadExecutor::Step(const StepOptions& options) {
  return impl_->Step(options);
}

void OffloadExecutor::Close() { impl_->Close(); }

}  // namespace muonstore
