#include "src/tier/host_tiers.h"

#include <string_view>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/tier/arena_layout.h"
#include "src/tier/memory_arena.h"

namespace muonstore::tier {
namespace {

class HostTier : public Tier {
 public:
  explicit HostTier(const HostTierSeams& seams) : seams_(seams) {}

  bool addressable() const override { return true; }

  std::unique_ptr<Arena> CreateArena(const ArenaOptions& options) override {
    ArenaLayout layout(options);
    // The system promises more memory than it has and kills later.
    const uint64_t available = available_bytes();
    if (layout.total_bytes() > available) {
      throw Error(ErrorCode::kResourceExhausted,
                  StrCat("arena ", options.name,
                         " does not fit into host memory: use "
                         "more ranks, or keep less state in this tier"),
                  {.expected = StrCat(layout.total_bytes(), " bytes"),
                   .found = StrCat(available, " bytes available")});
    }
    // Looked for at the first arena that is to be pinned, since it starts CUDA.
    if (cuda_ == nullptr && options.pinning != Pinning::kOff) {
      cuda_ = std::make_shared<const CudaHost>(seams_.cuda_libraries);
    }
    HostMemory memory = Allocate(options.name, layout.total_bytes());
    return std::make_unique<MemoryArena>(std::move(layout), std::move(memory),
                                         options.pinning, cuda_);
  }

  uint64_t ArenaBytes(const ArenaOptions& options) const override {
    return ArenaLayout(options).total_bytes();
  }

  uint64_t available_bytes() const override {
    return AvailableMemoryBytes(seams_.memory_files);
  }

 protected:
  virtual HostMemory Allocate(const std::string& name,
                              uint64_t size_bytes) const = 0;

 private:
  HostTierSeams seams_;
  std::shared_ptr<const CudaHost> cuda_;
};

class PinnedHostTier : public HostTier {
 public:
  using HostTier::HostTier;
  std::string_view name() const override { return "pinned host"; }

 protected:
  HostMemory Allocate(const std::string& name,
                      uint64_t size_bytes) const override {
    return HostMemory(std::in_place_type<AnonymousMemory>, name, size_bytes);
  }
};

class SharedHostTier : public HostTier {
 public:
  using HostTier::HostTier;
  std::string_view name() const override { return "shared host"; }

 protected:
  HostMemory Allocate(const std::string& name,
                      uint64_t size_bytes) const override {
    SharedMemory shared = SharedMemory::Create(name, size_bytes, Access::kRead);
    AdviseHugePages(shared.memory());
    return shared;
  }
};

}  // namespace

std::unique_ptr<Tier> MakePinnedHostTier(const HostTierSeams& seams) {
  return std::make_unique<PinnedHostTier>(seams);
}

std::unique_ptr<Tier> MakeSharedHostTier(const HostTierSeams& seams) {
  return std::make_unique<SharedHostTier>(seams);
}

}  // namespace muonstore::tier

namespace muonstore {

std::unique_ptr<Tier> MakePinnedHostTier() {
  return tier::MakePinnedHostTier({});
}

std::unique_ptr<Tier> MakeSharedHostTier() {
  return tier::MakeSharedHostTier({});
}

}  // namespace muonstore
