#include "src/comm/shared/transfer.h"

#include <algorithm>
#include <utility>

namespace muonstore::comm {
namespace {

// Shorter pieces are cheaper copied, many at a time, than pointed to.
constexpr size_t kMinBytesInPlace = 1024;

// Descriptors on their way; counts wrap around.
uint32_t UnderWay(const Channel& channel) {
  return channel.pushed.load(std::memory_order_relaxed) -
         channel.popped.load(std::memory_order_acquire);
}

void Post(Channel& channel, const Descriptor& descriptor) {
  const uint32_t index = channel.pushed.load(std::memory_order_relaxed);
  channel.ring[index % kRingLength] = descriptor;
  channel.pushed.store(index + 1, std::memory_order_release);
}

}  // namespace

Transfer::Transfer(const Node& node, const PublishedArenas& arenas,
                   const ExchangePlan& plan)
    : node_(node),
      arenas_(arenas),
      outgoing_(static_cast<size_t>(node.size())),
      incoming_(ReceivesByPeer(plan, node.size())) {
  std::vector<SendQueue> sends = SendsByPeer(plan, node.size());
  const auto self = static_cast<size_t>(node.rank());
  CopyPieces(sends[self], incoming_[self]);
  for (size_t peer = 0; peer < sends.size(); ++peer) {
    outgoing_[peer].left = std::move(sends[peer]);
    // Everything before this exchange has been copied.
    outgoing_[peer].free_after.fill(
        node.control()
            .channel(node.rank(), static_cast<int32_t>(peer))
            .popped.load(std::memory_order_acquire));
  }
}

StepResult Transfer::Step() {
  bool moved = false;
  bool done = true;
  // Each rank begins with another peer.
  for (int32_t distance = 1; distance < node_.size(); ++distance) {
    const int32_t peer = (node_.rank() + distance) % node_.size();
    moved = Send(peer) || moved;
    moved = Receive(peer) || moved;
    done = done && Sent(peer) && incoming_[static_cast<size_t>(peer)].empty();
  }
  if (done) {
    return StepResult::kDone;
  }
  return moved ? StepResult::kMoved : StepResult::kStuck;
}

std::vector<int32_t> Transfer::Blockers() const {
  std::vector<int32_t> blockers;
  for (int32_t peer = 0; peer < node_.size(); ++peer) {
    if (!Sent(peer) || !incoming_[static_cast<size_t>(peer)].empty()) {
      blockers.push_back(peer);
    }
  }
  return blockers;
}

bool Transfer::Sent(int32_t peer) const {
  return outgoing_[static_cast<size_t>(peer)].left.empty() &&
         UnderWay(node_.control().channel(node_.rank(), peer)) == 0;
}

bool Transfer::GoesInPlace(std::span<const std::byte> piece) const {
  return piece.size() >= kMinBytesInPlace && arenas_.Find(piece).has_value();
}

bool Transfer::Send(int32_t peer) {
  Outgoing& outgoing = outgoing_[static_cast<size_t>(peer)];
  Channel& channel = node_.control().channel(node_.rank(), peer);
  bool posted = PostInPlace(channel, outgoing);
  posted = PostChunk(channel, peer, outgoing) || posted;
  if (posted) {
    node_.Ring(peer);
  }
  return posted;
}

// As many as the ring takes.
bool Transfer::PostInPlace(Channel& channel, Outgoing& outgoing) {
  bool posted = false;
  while (!outgoing.left.empty() && UnderWay(channel) < kRingLength &&
         outgoing.left.front().size() >= kMinBytesInPlace) {
    const auto place = arenas_.Find(outgoing.left.front());
    if (!place) {
      break;
    }
    Post(channel, *place);
    outgoing.left.Pop(place->size_bytes);
    posted = true;
  }
  return posted;
}

// One, so that all peers get their turn.
bool Transfer::PostChunk(Channel& channel, int32_t peer, Outgoing& outgoing) {
  if (outgoing.left.empty() || UnderWay(channel) == kRingLength ||
      GoesInPlace(outgoing.left.front())) {
    return false;
  }
  const uint32_t chunk = outgoing.next_chunk;
  const uint32_t popped = channel.popped.load(std::memory_order_acquire);
  // Signed, as counts wrap around.
  if (static_cast<int32_t>(popped - outgoing.free_after[chunk]) < 0) {
    return false;
  }
  const std::span<std::byte> bounce =
      node_.control().bounce(node_.rank(), peer);
  const size_t chunk_bytes = bounce.size() / kBounceChunks;
  const uint64_t offset = chunk * chunk_bytes;
  const uint64_t filled =
      FillChunk(outgoing.left, bounce.subspan(offset, chunk_bytes));
  Post(channel, {kBounceArena, static_cast<uint32_t>(filled), offset});
  outgoing.free_after[chunk] = channel.pushed.load(std::memory_order_relaxed);
  outgoing.next_chunk = (chunk + 1) % kBounceChunks;
  return true;
}

uint64_t Transfer::FillChunk(SendQueue& from,
                             std::span<std::byte> chunk) const {
  uint64_t filled = 0;
  while (filled < chunk.size() && !from.empty() && !GoesInPlace(from.front())) {
    const size_t bytes = std::min(chunk.size() - filled, from.front().size());
    TakeBytes(from, chunk.subspan(filled, bytes));
    filled += bytes;
  }
  return filled;
}

bool Transfer::Receive(int32_t peer) {
  Channel& channel = node_.control().channel(peer, node_.rank());
  const uint32_t popped = channel.popped.load(std::memory_order_relaxed);
  if (channel.pushed.load(std::memory_order_acquire) == popped) {
    return false;
  }
  const Descriptor place = channel.ring[popped % kRingLength];
  const std::span<const std::byte> bytes =
      place.arena == kBounceArena
          ? node_.control()
                .bounce(peer, node_.rank())
                .subspan(place.offset_bytes, place.size_bytes)
          : arenas_.BytesOf(peer, place);
  CopyPieces(bytes, incoming_[static_cast<size_t>(peer)]);
  channel.popped.store(popped + 1, std::memory_order_release);
  node_.Ring(peer);
  return true;
}

}  // namespace muonstore::comm
