#include "src/checkpoint/load_steps.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>
#include <vector>

#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

constexpr int64_t kSampleElements = 4;
constexpr int64_t kNoVote = std::numeric_limits<int64_t>::max();

// From the middle of a tensor, away from paddings and embeddings of rare words.
void AddSample(const Checkpoint& checkpoint, size_t index, Digest& digest) {
  const CheckpointTensor& tensor = checkpoint.tensors()[index];
  const int64_t num_elements = tensor.shape.num_elements();
  if (tensor.derived || !tensor.missing.empty()) return;
  const int64_t begin = num_elements / 2;
  const int64_t end = std::min(num_elements, begin + kSampleElements);
  std::vector<std::byte> bytes(static_cast<size_t>(end - begin) *
                               static_cast<size_t>(SizeBytes(tensor.dtype)));
  ReadTensor(checkpoint, index, {begin, end}, bytes);
  digest.Add(std::string_view(reinterpret_cast<const char*>(bytes.data()),
                              bytes.size()));
}

int64_t SampleDigest(const Checkpoint& checkpoint, const LoadPlan& plan) {
  Digest digest;
  for (const LoadItem& item : plan.items) {
    if (item.tensor) AddSample(checkpoint, *item.tensor, digest);
  }
  return digest.value();
}

}  // namespace

LoadPlan PlanLoadOf(StateStore& store, const Checkpoint& checkpoint,
                    const LoadOptions& options) {
  store.impl().RequireUsable();
  store.impl().leases.RequireNone("a load");
  return PlanLoad(store, checkpoint, options);
}

int64_t DigestOf(const Checkpoint& checkpoint, const LoadPlan& plan) {
  const CheckpointInfo& info = checkpoint.info();
  Digest digest;
  digest.Add(info.tag).Add(info.step.value_or(-1)).Add(info.identity);
  digest.Add(static_cast<int64_t>(info.total_bytes)).Add(info.num_files);
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    digest.Add(tensor.key.ToString()).Add(tensor.shape.ToString());
    digest.Add(DTypeName(tensor.dtype));
  }
  for (const LoadItem& item : plan.items) {
    digest.Add(static_cast<int64_t>(item.tensor.has_value()));
    digest.Add(item.divisor);
  }
  digest.Add(static_cast<int64_t>(plan.record.clipping));
  return digest.value();
}

void RequireSameContent(Communicator& ranks, const Checkpoint& checkpoint,
                        const LoadPlan& plan) {
  std::array<int64_t, 2> least = {kNoVote, kNoVote};
  if (checkpoint.info().identity.empty()) {
    const auto unreadable = Caught([&] {
      const int64_t digest = SampleDigest(checkpoint, plan);
      least = {digest, ~digest};
    });
    if (unreadable) least = {kNoVote, kNoVote};
  }
  ranks.AllReduce(least, ReduceOp::kMin);
  const bool voted = least[0] != kNoVote || least[1] != kNoVote;
  if (voted && least[0] != ~least[1]) {
    throw Error(ErrorCode::kInvalidArgument,
                "the ranks have opened different checkpoints: tensors of one "
                "name hold different values",
                {.file = checkpoint.info().path});
  }
}

}  // namespace muonstore
