// What a hierarchical communicator is for: bytes for a rank of the same node
// stay on the node.
#ifndef MUONSTORE_TESTS_CONFORMANCE_HIERARCHICAL_CHECK_H_
#define MUONSTORE_TESTS_CONFORMANCE_HIERARCHICAL_CHECK_H_

#include <cstdint>
#include <memory>

#include "muonstore/communicator.h"

namespace muonstore::conformance {

// `inside` joins `ranks_of_node` successive ranks of `across`.
void CheckBytesStayOnTheNode(std::unique_ptr<Communicator> inside,
                             std::unique_ptr<Communicator> across,
                             int32_t ranks_of_node);

}  // namespace muonstore::conformance

#endif  // MUONSTORE_TESTS_CONFORMANCE_HIERARCHICAL_CHECK_H_
