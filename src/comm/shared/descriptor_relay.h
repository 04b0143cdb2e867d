// Passing descriptors between the ranks of a node, through rank 0.
#ifndef MUONSTORE_SRC_COMM_SHARED_DESCRIPTOR_RELAY_H_
#define MUONSTORE_SRC_COMM_SHARED_DESCRIPTOR_RELAY_H_

#include <vector>

#include "src/comm/shared/node.h"
#include "src/comm/shared/rendezvous.h"
#include "src/tier/shared_memory.h"

namespace muonstore {
class Arena;
}

namespace muonstore::comm {

// Collective, inside of a call: the arenas of all ranks, by rank, mapped
// read-only; empty for this rank and for arenas that cannot be shared.
std::vector<tier::SharedMemory> GatherArenas(Node& node, Arena& arena);

// Collective, inside of a call: a second membership of the same ranks.
Membership DuplicateMembership(Node& node);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_DESCRIPTOR_RELAY_H_
