#include "src/cuda/plugin/work.h"

#include <cmath>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::cuda {
namespace {

void RequireFinite(const BatchSums& sums) {
  const auto* values =
      reinterpret_cast<const double*>(sums.memory->bytes().data());
  for (int64_t i = 0; i < sums.matrices.batch; ++i) {
    if (std::isfinite(values[i])) continue;
    throw Error(
        ErrorCode::kInvalidArgument,
        StrCat("matrix ", i, " of a batch of ", sums.matrices.batch, " of ",
               sums.matrices.rows, " x ", sums.matrices.cols, " is not finite"),
        {.expected = "finite elements"});
  }
}

}  // namespace

Work::Work(const Api& api, std::shared_ptr<Event> event, BatchSums sums)
    : api_(api), event_(std::move(event)), sums_(std::move(sums)) {}

Work::~Work() {
  if (!finished_) api_.cudaEventSynchronize(event_->handle());
}

void Work::Finish() {
  api_.Check(api_.cudaEventSynchronize(event_->handle()),
             "cudaEventSynchronize");
  if (sums_.memory != nullptr) RequireFinite(sums_);
}

void Work::Wait() {
  if (!finished_) {
    finished_ = true;
    try {
      Finish();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  if (error_ != nullptr) std::rethrow_exception(error_);
}

bool Work::done() const {
  return finished_ || api_.cudaEventQuery(event_->handle()) != kErrorNotReady;
}

GpuBuffer::GpuBuffer(const Api& api, MemoryBudget& budget, uint64_t size_bytes)
    : api_(api), memory_(api, budget, size_bytes) {}

GpuBuffer::~GpuBuffer() {
  if (last_ != nullptr) api_.cudaEventSynchronize(last_->handle());
}

std::shared_ptr<PinnedMemory> GpuBuffer::TakeSums(int64_t count) {
  const uint64_t size = static_cast<uint64_t>(count) * sizeof(double);
  // Somebody who has not waited yet still looks at the old ones.
  if (sums_ == nullptr || sums_.use_count() > 1 ||
      sums_->bytes().size() < size) {
    sums_ = std::make_shared<PinnedMemory>(api_, size);
  }
  return sums_;
}

}  // namespace muonstore::cuda
