// The bytes of one exchange on their way between the ranks of a node.
//
// What: for each peer the sender posts where the receiver finds the bytes: in
//   a published arena, or in the channel's bounce memory, into which it copied
//   them. The receiver copies them to where they belong.
// Ownership: knows the caller's memory, the channels and the arenas.
#ifndef MUONSTORE_SRC_COMM_SHARED_TRANSFER_H_
#define MUONSTORE_SRC_COMM_SHARED_TRANSFER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/comm/plan.h"
#include "src/comm/shared/node.h"
#include "src/comm/shared/published_arenas.h"

namespace muonstore::comm {

class Transfer : public Steps {
 public:
  // The plan's pieces for this rank itself are copied at once.
  Transfer(const Node& node, const PublishedArenas& arenas,
           const ExchangePlan& plan);

  StepResult Step() override;
  std::vector<int32_t> Blockers() const override;

 private:
  // The sending half of a channel.
  struct Outgoing {
    SendQueue left;
    // Of each chunk, the count of descriptors after which it is free again.
    std::array<uint32_t, kBounceChunks> free_after{};
    uint32_t next_chunk = 0;
  };

  bool Send(int32_t peer);
  bool PostInPlace(Channel& channel, Outgoing& outgoing);
  bool PostChunk(Channel& channel, int32_t peer, Outgoing& outgoing);
  bool GoesInPlace(std::span<const std::byte> piece) const;
  uint64_t FillChunk(SendQueue& from, std::span<std::byte> chunk) const;
  bool Receive(int32_t peer);
  bool Sent(int32_t peer) const;

  const Node& node_;
  const PublishedArenas& arenas_;
  std::vector<Outgoing> outgoing_;
  std::vector<ReceiveQueue> incoming_;
};

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_TRANSFER_H_
