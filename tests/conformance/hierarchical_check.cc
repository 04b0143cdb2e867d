#include "tests/conformance/hierarchical_check.h"

#include <utility>

#include "src/base/str.h"
#include "tests/conformance/check.h"
#include "tests/conformance/planned_exchange.h"

namespace muonstore::conformance {
namespace {

struct Expected {
  uint64_t near = 0;
  uint64_t far = 0;
};

Expected BytesByDistance(const ExchangePlan& plan, int32_t rank,
                         int32_t ranks_of_node) {
  Expected bytes;
  for (const ReceivePiece& piece : plan.receives) {
    if (piece.peer / ranks_of_node != rank / ranks_of_node) {
      bytes.far += piece.data.size();
    } else if (piece.peer != rank) {
      bytes.near += piece.data.size();
    }
  }
  return bytes;
}

}  // namespace

void CheckBytesStayOnTheNode(std::unique_ptr<Communicator> inside,
                             std::unique_ptr<Communicator> across,
                             int32_t ranks_of_node) {
  // They live as long as the communicator that takes them.
  const Communicator& near = *inside;
  const Communicator& far = *across;
  const auto comm =
      MakeHierarchicalCommunicator(std::move(inside), std::move(across));
  CheckThat(comm->name() == "hierarchical", "another communicator");
  uint64_t near_bytes = near.received_bytes();
  uint64_t far_bytes = far.received_bytes();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const PlannedExchange exchange(comm->rank(), comm->size(),
                                   {1000 + seed, 200'000, 5});
    comm->Exchange(exchange.plan())->Wait();
    exchange.CheckReceived();
    const Expected expected =
        BytesByDistance(exchange.plan(), comm->rank(), ranks_of_node);
    near_bytes += expected.near;
    far_bytes += expected.far;
    CheckThat(near.received_bytes() == near_bytes,
              StrCat("inside: ", near.received_bytes(), " for ", near_bytes));
    CheckThat(far.received_bytes() == far_bytes,
              StrCat("across: ", far.received_bytes(), " for ", far_bytes));
  }
}

}  // namespace muonstore::conformance
