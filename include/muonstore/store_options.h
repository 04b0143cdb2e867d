// What a state store is built from, and what it will cost.
//
// What: tier policy, limits and estimates of a StateStore; see store.h.
// Ownership, threads: plain values; tiers and the communicator are shared.

#ifndef MUONSTORE_STORE_OPTIONS_H_
#define MUONSTORE_STORE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/communicator.h"
#include "muonstore/state_kind.h"
#include "muonstore/tier.h"

namespace muonstore {

// Where the segments of a state kind live.
struct KindPolicy {
  // Null: as TierPolicy::resident.
  std::shared_ptr<Tier> tier;
  Pinning pinning = Pinning::kTry;
  // Where the tier is not memory: segments of fewer bytes (on one rank) live in
  // TierPolicy::resident and are never moved out of it.
  uint64_t resident_below_bytes = uint64_t{1} << 20;
};

struct TierPolicy {
  // A host tier. Null: a pinned one; a shared one where the communicator joins
  // several ranks of a node.
  std::shared_ptr<Tier> resident;
  KindPolicy rest;  // Kinds that are not named below.
  // By the kinds that a store has (store.h), or other systems' names of them.
  std::map<StateKind, KindPolicy, std::less<>> kinds;

  const KindPolicy& of(const StateKind& kind) const {
    const auto found = kinds.find(kind);
    return found == kinds.end() ? rest : found->second;
  }
};

struct StoreOptions {
  // Null: one rank alone. All ranks give the same parameters and partitioning.
  std::shared_ptr<Communicator> communicator;
  TierPolicy tiers;
  // This rank's segments may take this many bytes over all tiers; 0: as much as
  // the tiers have available.
  uint64_t max_bytes = 0;
  // The first asynchronous save takes host memory, once, so that steps can go
  // on while it reads: as much again as masters, momenta and moments have, up
  // to this many bytes on this rank; 0: no such limit. A step waits for the
  // save of what has no memory of its own; StepReport says how long.
  uint64_t max_snapshot_bytes = 0;
  // Takes it when the store is built, so that neither the first asynchronous
  // save nor the step behind it waits for the system to find it.
  bool reserve_snapshot_memory = false;
};

// Bytes on one rank, before anything is allocated.
struct StoreEstimate {
  struct Kind {
    StateKind kind;
    std::string tier;
    uint64_t bytes = 0;  // With padding and alignment.
    // What the first asynchronous save adds to it.
    uint64_t snapshot_bytes = 0;
    // Indices into Partitioning::groups() of the segments that these are.
    std::vector<int32_t> flat_groups;
    // They are small ones of a kind whose tier is not memory.
    bool resident = false;
  };
  struct Parameter {
    std::string name;
    // Of its elements on this rank, over all kinds, without padding.
    uint64_t bytes = 0;
  };
  int32_t rank = 0;
  // A kind comes twice where only some of its segments are resident.
  std::vector<Kind> kinds;
  std::vector<Parameter> parameters;

  uint64_t total_bytes() const {
    uint64_t total = 0;
    for (const Kind& kind : kinds) total += kind.bytes;
    return total;
  }
  uint64_t total_snapshot_bytes() const {
    uint64_t total = 0;
    for (const Kind& kind : kinds) total += kind.snapshot_bytes;
    return total;
  }
};

}  // namespace muonstore

#endif  // MUONSTORE_STORE_OPTIONS_H_
