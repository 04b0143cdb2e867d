// Gradients down and weights up, through two pinned buffers.
#include <algorithm>
#include <deque>
#include <functional>
#include <utility>

#include "muonstore/cuda.h"
#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/base/str.h"

namespace muonstore {

class DeviceTransfers::Impl {
 public:
  Impl(std::shared_ptr<CudaDevice> device, uint64_t staging_bytes);

  void Accumulate(OffloadExecutor& executor,
                  std::span<const DeviceGradient> gradients, void* stream);
  void SendWeights(StateStore& store, std::span<const DeviceWeight> weights,
                   void* stream);

 private:
  // A copy that was started and what to do behind it. The handle waits when it
  // goes, so that no copy outlives the memory that it is about.
  struct Copy {
    PendingPtr pending;
    std::function<void()> then;
  };

  // A buffer whose copy has ended, and what belongs behind it was done.
  std::span<std::byte> NextBuffer(std::deque<Copy>& copies);
  static void FinishOldest(std::deque<Copy>& copies);
  static void FinishAll(std::deque<Copy>& copies);

  std::shared_ptr<CudaDevice> device_;
  std::unique_ptr<Tier> tier_ = MakePinnedHostTier();
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<IoMemory> registered_;
  int32_t next_buffer_ = 0;
};

DeviceTransfers::Impl::Impl(std::shared_ptr<CudaDevice> device,
                            uint64_t staging_bytes)
    : device_(std::move(device)) {
  constexpr uint64_t kElement = 8;  // Whole elements of any dtype.
  const uint64_t half = staging_bytes / 2 / kElement * kElement;
  if (half == 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "transfers need two buffers of one element or more",
        {.expected = "at least 16 bytes", .found = StrCat(staging_bytes)});
  }
  arena_ = tier_->CreateArena(
      {.name = "device transfers", .block_bytes = {half, half}});
  registered_ = device_->RegisterMemory(arena_->all_memory());
}

void DeviceTransfers::Impl::FinishOldest(std::deque<Copy>& copies) {
  const Copy copy = std::move(copies.front());
  copies.pop_front();
  copy.pending->Wait();
  if (copy.then) copy.then();
}

void DeviceTransfers::Impl::FinishAll(std::deque<Copy>& copies) {
  while (!copies.empty()) FinishOldest(copies);
}

std::span<std::byte> DeviceTransfers::Impl::NextBuffer(
    std::deque<Copy>& copies) {
  if (copies.size() == 2) FinishOldest(copies);
  next_buffer_ = 1 - next_buffer_;
  return arena_->memory(next_buffer_, 0);
}

void DeviceTransfers::Impl::Accumulate(
    OffloadExecutor& executor, std::span<const DeviceGradient> gradients,
    void* stream) {
  std::deque<Copy> copies;
  for (const DeviceGradient& gradient : gradients) {
    const int64_t element_bytes = SizeBytes(gradient.dtype);
    const auto* data = static_cast<const std::byte*>(gradient.data);
    for (int64_t first = 0; first < gradient.num_elements;) {
      const std::span<std::byte> buffer = NextBuffer(copies);
      const int64_t count =
          std::min(gradient.num_elements - first,
                   static_cast<int64_t>(buffer.size()) / element_bytes);
      const auto part =
          buffer.first(static_cast<size_t>(count * element_bytes));
      copies.push_back(
          {.pending =
               device_->Download(part, data + first * element_bytes, stream),
           .then = [&executor, &gradient, part, first] {
             executor.Accumulate(gradient.name, {.dtype = gradient.dtype,
                                                 .data = part,
                                                 .first_element = first});
           }});
      first += count;
    }
  }
  FinishAll(copies);
}

void DeviceTransfers::Impl::SendWeights(StateStore& store,
                                        std::span<const DeviceWeight> weights,
                                        void* stream) {
  for (const DeviceWeight& weight : weights) {
    const auto index = static_cast<size_t>(store.FindParameter(weight.name));
    const ParameterSpec& parameter = store.parameters()[index];
    const auto size_bytes = static_cast<uint64_t>(
        parameter.shape.num_elements() * SizeBytes(parameter.weight_dtype));
    if (weight.size_bytes != size_bytes) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the device memory has not the size of the weights",
                  {.tensor = weight.name,
                   .expected = StrCat(size_bytes, " bytes"),
                   .found = StrCat(weight.size_bytes)});
    }
  }
  std::deque<Copy> copies;
  for (const DeviceWeight& weight : weights) {
    const GatheredTensor tensor = store.Gather(weight.name, StateKind(kWeight));
    std::span<const std::byte> rest = tensor.data;
    auto* data = static_cast<std::byte*>(weight.data);
    while (!rest.empty()) {
      const std::span<std::byte> buffer = NextBuffer(copies);
      const size_t size = std::min(rest.size(), buffer.size());
      std::copy_n(rest.begin(), size, buffer.begin());
      copies.push_back(
          {.pending = device_->Upload(data, buffer.first(size), stream),
           .then = {}});
      rest = rest.subspan(size);
      data += size;
    }
  }
  FinishAll(copies);
}

DeviceTransfers::DeviceTransfers(std::shared_ptr<CudaDevice> device,
                                 uint64_t staging_bytes)
    : impl_(std::make_unique<Impl>(std::move(device), staging_bytes)) {}

DeviceTransfers::~DeviceTransfers() = default;

void DeviceTransfers::Accumulate(OffloadExecutor& executor,
                                 std::span<const DeviceGradient> gradients,
                                 void* stream) {
  impl_->Accumulate(executor, gradients, stream);
}

void DeviceTransfers::SendWeights(StateStore& store,
                                  std::span<const DeviceWeight> weights,
                                  void* stream) {
  impl_->SendWeights(store, weights, stream);
}

}  // namespace muonstore
