#include "src/tier/memory_arena.h"

#include <cstring>
#include <utility>

#include "src/base/pending.h"

namespace muonstore::tier {
namespace {

std::span<std::byte> MemoryOf(const HostMemory& owner) {
  return std::visit([](const auto& memory) { return memory.memory(); }, owner);
}

void Copy(std::span<std::byte> to, std::span<const std::byte> from) {
  // memcpy of nothing still wants pointers.
  if (!from.empty()) {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

}  // namespace

MemoryArena::MemoryArena(ArenaLayout layout, HostMemory memory, Pinning pinning,
                         std::shared_ptr<const CudaHost> cuda)
    : layout_(std::move(layout)),
      owner_(std::move(memory)),
      memory_(MemoryOf(owner_)),
      lock_(memory_, pinning, layout_.name(), std::move(cuda)) {}

std::span<std::byte> MemoryArena::memory(int32_t block, int32_t slot) {
  return memory_.subspan(layout_.OffsetBytes(block, slot),
                         layout_.block_bytes(block));
}

int MemoryArena::shared_fd() const {
  const auto* shared = std::get_if<SharedMemory>(&owner_);
  return shared != nullptr && !memory_.empty() ? shared->fd() : -1;
}

PendingPtr MemoryArena::Read(const BlockRange& from, std::span<std::byte> out) {
  const uint64_t offset = layout_.OffsetBytes(from, out.size());
  Copy(out, memory_.subspan(offset, out.size()));
  return std::make_unique<DonePending>();
}

PendingPtr MemoryArena::Write(const BlockRange& to,
                              std::span<const std::byte> data) {
  const uint64_t offset = layout_.OffsetBytes(to, data.size());
  Copy(memory_.subspan(offset, data.size()), data);
  return std::make_unique<DonePending>();
}

}  // namespace muonstore::tier
