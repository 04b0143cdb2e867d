// The two tiers of host memory, over seams that tests replace.
#ifndef MUONSTORE_SRC_TIER_HOST_TIERS_H_
#define MUONSTORE_SRC_TIER_HOST_TIERS_H_

#include <memory>
#include <string>
#include <vector>

#include "muonstore/tier.h"
#include "src/tier/cuda_host.h"
#include "src/tier/memory_limits.h"

namespace muonstore::tier {

struct HostTierSeams {
  std::vector<std::string> cuda_libraries = CudaHost::DefaultLibraries();
  MemoryFiles memory_files;
};

std::unique_ptr<Tier> MakePinnedHostTier(const HostTierSeams& seams);
std::unique_ptr<Tier> MakeSharedHostTier(const HostTierSeams& seams);

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_HOST_TIERS_H_
