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
                           std::string_view kind, std::span<std::byte> out) {
  const DType dtype = store.dtype(parameter, kind);
  const auto element_bytes = static_cast<size_t>(SizeBytes(dtype));
  const int32_t rank = store.communicator->rank();
  ExchangePlan plan;
  for (const Fragment& fragment : store.partitioning.fragments(parameter)) {
    const int32_t source = store.rank_of(fragment);
    if (source == rank) {
      const auto data = store.memory(fragment, kind, dtype);
      for (int32_t peer = 0; peer < store.communicator->size(); ++peer) {
        plan.sends.push_back({peer, data});
      }
    }
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
  const std::optional<Error> error = Caught([&] {
    impl_->RequireUsable();
    lease.emplace(Read(name, kind));
  });
  // Tensors of one size would be mixed without a word.
  RequireAgreement(*impl_->communicator, "the tensor to gather", error,
                   error ? 0 : Digest().Add(lease->key().ToString()).value());
  const int32_t parameter = impl_->Find(name);
  GatheredTensor tensor{
      .key = lease->key(), .shape = lease->shape(), .dtype = lease->dtype()};
  tensor.data.resize(static_cast<size_t>(tensor.shape.num_elements()) *
                     static_cast<size_t>(SizeBytes(tensor.dtype)));
  impl_->communicator
      ->Exchange(PlanAllGather(*impl_, parameter, tensor.key.kind, tensor.data))
      ->Wait();
  return tensor;
}

}  // namespace muonstore
