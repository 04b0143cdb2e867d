// An arena in addressable memory: reads and writes are copies, done at once.
#ifndef MUONSTORE_SRC_TIER_MEMORY_ARENA_H_
#define MUONSTORE_SRC_TIER_MEMORY_ARENA_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <variant>

#include "muonstore/tier.h"
#include "src/tier/anonymous_memory.h"
#include "src/tier/arena_layout.h"
#include "src/tier/page_lock.h"
#include "src/tier/shared_memory.h"

namespace muonstore::tier {

using HostMemory = std::variant<AnonymousMemory, SharedMemory>;

class MemoryArena : public Arena {
 public:
  MemoryArena(ArenaLayout layout, HostMemory memory, Pinning pinning,
              std::shared_ptr<const CudaHost> cuda);

  std::string_view name() const override { return layout_.name(); }
  std::span<std::byte> memory(int32_t block, int32_t slot) override;
  std::span<std::byte> all_memory() override { return memory_; }
  int shared_fd() const override;
  PendingPtr Read(const BlockRange& from, std::span<std::byte> out) override;
  PendingPtr Write(const BlockRange& to,
                   std::span<const std::byte> data) override;
  const PinReport& pin_report() const override { return lock_.report(); }

 private:
  ArenaLayout layout_;
  HostMemory owner_;
  std::span<std::byte> memory_;
  // Behind its memory, to go before it.
  PageLock lock_;
};

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_MEMORY_ARENA_H_
