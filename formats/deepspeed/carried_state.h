// The values of a DeepSpeed checkpoint beside its logical tensors.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_CARRIED_STATE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_CARRIED_STATE_H_

#include <cstdint>

#include "formats/deepspeed/parts.h"
#include "formats/torchfile/carried_state.h"

namespace muonstore::deepspeed {

// The rank files themselves. Borrows the parts of a checkpoint. In stages 1 and
// 2 only rank 0 has model_states.
class RankFiles final : public torchfile::CarriedState {
 public:
  explicit RankFiles(const Parts& parts) : parts_(&parts) {}

  int32_t num_ranks() const override;
  torchfile::CarriedRank rank(int32_t rank) const override;

 private:
  std::shared_ptr<const torchfile::TorchFile> ModelFile(int32_t rank) const;

  const Parts* parts_;
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_CARRIED_STATE_H_
