// An exchange plan as an engine needs it: checked, and sorted by peer.
//
// Ownership: knows the caller's memory, owns none.
#ifndef MUONSTORE_SRC_COMM_PLAN_H_
#define MUONSTORE_SRC_COMM_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "muonstore/communicator.h"

namespace muonstore::comm {

// Throws Error(kInvalidArgument) for a peer that does not exist, and where
// sends to itself and receives from itself differ.
void RequirePlan(const ExchangePlan& plan, int32_t rank, int32_t size);

// The pieces of one peer as one run of bytes, taken from the front.
template <typename Byte>
class PieceQueue {
 public:
  void Push(std::span<Byte> piece) {
    if (!piece.empty()) {
      pieces_.push_back(piece);
      left_bytes_ += piece.size();
    }
  }
  bool empty() const { return left_bytes_ == 0; }
  uint64_t left_bytes() const { return left_bytes_; }
  // The first bytes that lie in one piece.
  std::span<Byte> front() const { return pieces_.front(); }
  // At most front().size().
  void Pop(uint64_t bytes) {
    left_bytes_ -= bytes;
    pieces_.front() = pieces_.front().subspan(bytes);
    if (pieces_.front().empty()) {
      pieces_.pop_front();
    }
  }

 private:
  std::deque<std::span<Byte>> pieces_;
  uint64_t left_bytes_ = 0;
};

using SendQueue = PieceQueue<const std::byte>;
using ReceiveQueue = PieceQueue<std::byte>;

// By peer.
std::vector<SendQueue> SendsByPeer(const ExchangePlan& plan, int32_t size);
std::vector<ReceiveQueue> ReceivesByPeer(const ExchangePlan& plan,
                                         int32_t size);

// Moves as much as both have; returns the bytes.
uint64_t CopyPieces(SendQueue& from, ReceiveQueue& to);
uint64_t CopyPieces(std::span<const std::byte> from, ReceiveQueue& to);
// Fills `to` with bytes from the front of `from`, which has as many.
void TakeBytes(SendQueue& from, std::span<std::byte> to);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_PLAN_H_
