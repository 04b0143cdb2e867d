// A communicator's engine over the shared memory of a node.
#ifndef MUONSTORE_SRC_COMM_SHARED_SHARED_MEMORY_ENGINE_H_
#define MUONSTORE_SRC_COMM_SHARED_SHARED_MEMORY_ENGINE_H_

#include <memory>

#include "src/comm/engine.h"
#include "src/comm/shared/rendezvous.h"

namespace muonstore::comm {

std::unique_ptr<Engine> MakeSharedMemoryEngine(Membership membership);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_SHARED_MEMORY_ENGINE_H_
