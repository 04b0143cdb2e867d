#include "src/comm/shared/published_arenas.h"

#include <algorithm>
#include <utility>

#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/base/str.h"

namespace muonstore::comm {
namespace {

// Long pieces go in parts, so that a receiver turns to its other peers.
constexpr size_t kMaxPartBytes = size_t{4} << 20;

}  // namespace

int32_t PublishedArenas::NumberOf(const Arena& arena) const {
  const auto found = std::ranges::find_if(
      arenas_, [&](const auto& entry) { return entry.second.arena == &arena; });
  if (found == arenas_.end()) {
    throw Error(ErrorCode::kInternal,
                StrCat("arena ", arena.name(), " was never published"));
  }
  return found->first;
}

void PublishedArenas::Add(Arena& arena, std::vector<tier::SharedMemory> peers) {
  std::span<const std::byte> own;
  if (arena.shared_fd() >= 0) {
    own = arena.all_memory();
  }
  arenas_.emplace(next_number_++, Entry{&arena, own, std::move(peers)});
}

void PublishedArenas::Remove(int32_t number) { arenas_.erase(number); }

std::optional<Descriptor> PublishedArenas::Find(
    std::span<const std::byte> bytes) const {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  for (const auto& [number, entry] : arenas_) {
    const auto own = reinterpret_cast<uintptr_t>(entry.own.data());
    if (begin >= own && begin - own <= entry.own.size() &&
        bytes.size() <= entry.own.size() - (begin - own)) {
      return Descriptor{
          number, static_cast<uint32_t>(std::min(bytes.size(), kMaxPartBytes)),
          begin - own};
    }
  }
  return std::nullopt;
}

std::span<const std::byte> PublishedArenas::BytesOf(
    int32_t peer, const Descriptor& place) const {
  const auto entry = arenas_.find(place.arena);
  if (entry != arenas_.end()) {
    const std::span<const std::byte> memory =
        entry->second.peers[static_cast<size_t>(peer)].memory();
    if (place.offset_bytes <= memory.size() &&
        place.size_bytes <= memory.size() - place.offset_bytes) {
      return memory.subspan(place.offset_bytes, place.size_bytes);
    }
  }
  throw Error(ErrorCode::kInternal,
              StrCat("rank ", peer, " points to ", place.size_bytes,
                     " bytes at ", place.offset_bytes, " of arena ",
                     place.arena, ", which it did not publish"));
}

}  // namespace muonstore::comm
