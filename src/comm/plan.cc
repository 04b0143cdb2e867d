#include "src/comm/plan.h"

#include <algorithm>
#include <cstring>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::comm {
namespace {

// The bytes for `rank` itself.
template <typename Piece>
uint64_t CheckPieces(const std::vector<Piece>& pieces, int32_t rank,
                     int32_t size, std::string_view what) {
  uint64_t own_bytes = 0;
  for (const Piece& piece : pieces) {
    if (piece.peer < 0 || piece.peer >= size) {
      throw Error(
          ErrorCode::kInvalidArgument,
          StrCat("the exchange plan of rank ", rank, " ", what, " rank ",
                 piece.peer, ", but there are ", size, " ranks"));
    }
    own_bytes += piece.peer == rank ? piece.data.size() : 0;
  }
  return own_bytes;
}

template <typename Queue, typename Piece>
std::vector<Queue> ByPeer(const std::vector<Piece>& pieces, int32_t size) {
  std::vector<Queue> queues(static_cast<size_t>(size));
  for (const Piece& piece : pieces) {
    queues[static_cast<size_t>(piece.peer)].Push(piece.data);
  }
  return queues;
}

}  // namespace

void RequirePlan(const ExchangePlan& plan, int32_t rank, int32_t size) {
  const uint64_t sent = CheckPieces(plan.sends, rank, size, "sends to");
  const uint64_t received =
      CheckPieces(plan.receives, rank, size, "receives from");
  if (sent != received) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the exchange plan of rank ", rank, " sends ", sent,
                       " bytes to itself and receives ", received));
  }
}

std::vector<SendQueue> SendsByPeer(const ExchangePlan& plan, int32_t size) {
  return ByPeer<SendQueue>(plan.sends, size);
}

std::vector<ReceiveQueue> ReceivesByPeer(const ExchangePlan& plan,
                                         int32_t size) {
  return ByPeer<ReceiveQueue>(plan.receives, size);
}

uint64_t CopyPieces(std::span<const std::byte> from, ReceiveQueue& to) {
  uint64_t copied = 0;
  while (copied < from.size() && !to.empty()) {
    const std::span<std::byte> target = to.front();
    const size_t bytes = std::min(target.size(), from.size() - copied);
    // A rank may receive from itself in place.
    std::memmove(target.data(), from.data() + copied, bytes);
    to.Pop(bytes);
    copied += bytes;
  }
  return copied;
}

uint64_t CopyPieces(SendQueue& from, ReceiveQueue& to) {
  uint64_t copied = 0;
  while (!from.empty() && !to.empty()) {
    const uint64_t bytes = CopyPieces(from.front(), to);
    from.Pop(bytes);
    copied += bytes;
  }
  return copied;
}

void TakeBytes(SendQueue& from, std::span<std::byte> to) {
  while (!to.empty()) {
    const size_t bytes = std::min(to.size(), from.front().size());
    std::memcpy(to.data(), from.front().data(), bytes);
    from.Pop(bytes);
    to = to.subspan(bytes);
  }
}

}  // namespace muonstore::comm
