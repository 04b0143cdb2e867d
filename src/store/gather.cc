// Gathering a tensor from the ranks that hold it.
#include <optional>
#include <span>

#include "muonstore/error.h"
#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

// This rank's pieces go to every rank; each rank's pieces come to their places
// in `out`. Both sides list the fragments in the same order.
ExchangePlan PlanAllGather(const StateStore::Impl& store, int32_t parameter,
                           const ReadLease& lease, std::span<std::byte> out) {
  const auto element_bytes = static_cast<size_t>(SizeBytes(lease.dtype()));
  ExchangePlan plan;
  for (const auto& piece : lease.pieces()) {
    for (int32_t peer = 0; peer < store.communicator->size(); ++peer) {
      plan.sends.push_back({peer, piece.data});
    }
  }
  for (const Fragment& fragment : store.partitioning.fragments(parameter)) {
    const int32_t source = store.rank_of(fragment);
    for (int64_t i = 0; i < fragment.count; ++i) {
      const int64_t first = fragment.tensor_offset + i * fragment.stride;
      plan.receives.push_back(
          {source,
           out.subspan(static_cast<size_t>(first) * element_bytes,
                       static_cast<size_t>(fragment.length) * element_bytes)});
    }
  }
  return plan;
}

}  // namespace

std::span<const float> GatheredTensor::f32() const {
  if (dtype != DType::kF32) {
    throw Error(ErrorCode::kInvalidArgument, "the tensor is not f32",
                {.tensor = key.ToString(),
                 .expected = "f32",
                 .found = std::string(DTypeName(dtype))});
  }
  return {reinterpret_cast<const float*>(data.data()),
          data.size() / sizeof(float)};
}

GatheredTensor StateStore::Gather(std::string_view name,
                                  const StateKind& kind) {
  std::optional<ReadLease> lease;
  GatheredTensor tensor;
  const std::optional<Error> error = Caught([&] {
    impl_->RequireUsable();
    lease.emplace(Read(name, kind));
    tensor.key = lease->key();
    tensor.shape = lease->shape();
    tensor.dtype = lease->dtype();
    tensor.data.resize(static_cast<size_t>(tensor.shape.num_elements()) *
                       static_cast<size_t>(SizeBytes(tensor.dtype)));
  });
  // Tensors of one size would be mixed without a word.
  RequireAgreement(*impl_->communicator, "the tensor to gather", error,
                   error ? 0 : Digest().Add(tensor.key.ToString()).value());
  impl_->communicator
      ->Exchange(PlanAllGather(*impl_, impl_->Find(name), *lease, tensor.data))
      ->Wait();
  return tensor;
}

}  // namespace muonstore
