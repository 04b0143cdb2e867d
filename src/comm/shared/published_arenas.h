// The arenas that the ranks of a node let each other read.
//
// What: numbered in the order of the Publish calls, equal on all ranks.
// Ownership: owns mappings of the peers' memory, not the own arenas.
// Failures: Error(kInternal) for a place that no arena has.
#ifndef MUONSTORE_SRC_COMM_SHARED_PUBLISHED_ARENAS_H_
#define MUONSTORE_SRC_COMM_SHARED_PUBLISHED_ARENAS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "src/comm/shared/control_block.h"
#include "src/tier/shared_memory.h"

namespace muonstore {
class Arena;
}

namespace muonstore::comm {

class PublishedArenas {
 public:
  // The number that the next arena will have.
  int32_t next_number() const { return next_number_; }
  int32_t NumberOf(const Arena& arena) const;

  // `peers` by rank; empty where a rank has nothing to read in place.
  void Add(Arena& arena, std::vector<tier::SharedMemory> peers);
  void Remove(int32_t number);

  // Where peers find these bytes of this rank; none where they cannot.
  std::optional<Descriptor> Find(std::span<const std::byte> bytes) const;
  std::span<const std::byte> BytesOf(int32_t peer,
                                     const Descriptor& place) const;

 private:
  struct Entry {
    const Arena* arena;
    // Empty where peers cannot read it.
    std::span<const std::byte> own;
    std::vector<tier::SharedMemory> peers;
  };

  int32_t next_number_ = 0;
  std::map<int32_t, Entry> arenas_;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_PUBLISHED_ARENAS_H_
