// Tensors over what a lease gives.
#include <memory>
#include <string>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/torch.h"
#include "src/base/str.h"
#include "src/torch/blob.h"

namespace muonstore {
namespace {

template <typename LeaseType>
at::Tensor Whole(const std::shared_ptr<const LeaseType>& lease) {
  const auto pieces = lease->pieces();
  const Shape& shape = lease->shape();
  if (shape.num_elements() == 0) {
    return Blob(nullptr, lease->dtype(), shape.dims(),
                shape.ContiguousStrides(), lease);
  }
  if (pieces.size() != 1 ||
      pieces[0].fragment.num_elements() != shape.num_elements()) {
    int64_t num_here = 0;
    for (const auto& piece : pieces) num_here += piece.fragment.num_elements();
    throw Error(ErrorCode::kInvalidArgument,
                "the tensor is not on this rank in one piece; "
                "StateStore::Gather gathers it",
                {.tensor = lease->key().ToString(),
                 .expected = StrCat(shape.num_elements(), " elements"),
                 .found = StrCat(num_here, " in ", pieces.size(),
                                 pieces.size() == 1 ? " piece" : " pieces")});
  }
  return Blob(pieces[0].data.data(), lease->dtype(), shape.dims(),
              shape.ContiguousStrides(), lease);
}

template <typename LeaseType>
at::Tensor Matrices(const std::shared_ptr<const LeaseType>& lease,
                    int32_t batch, int64_t first, int64_t count) {
  const auto view = lease->Matrices(batch, first, count);
  return AsTensor(view, lease);
}

}  // namespace

at::Tensor MatrixTensor(const std::shared_ptr<const ReadLease>& lease,
                        int32_t batch, int64_t first, int64_t count) {
  return Matrices(lease, batch, first, count);
}

at::Tensor MatrixTensor(const std::shared_ptr<const WriteLease>& lease,
                        int32_t batch, int64_t first, int64_t count) {
  return Matrices(lease, batch, first, count);
}

at::Tensor WholeTensor(const std::shared_ptr<const ReadLease>& lease) {
  return Whole(lease);
}

at::Tensor WholeTensor(const std::shared_ptr<const WriteLease>& lease) {
  return Whole(lease);
}

}  // namespace muonstore
