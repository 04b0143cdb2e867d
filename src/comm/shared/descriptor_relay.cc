#include "src/comm/shared/descriptor_relay.h"

#include <cstring>
#include <utility>

#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/comm/shared/control_block.h"
#include "src/comm/shared/local_socket.h"

namespace muonstore::comm {
namespace {

const os::FileDescriptor& LinkTo(const Node& node, int32_t peer) {
  const auto& links = node.membership().links;
  return node.rank() == 0 ? links[static_cast<size_t>(peer)] : links[0];
}

// A message from each of `peers`. A link that is closed stays stuck: the look
// at the peers' processes says why.
class ReceiveFrom : public Steps {
 public:
  ReceiveFrom(const Node& node, std::vector<int32_t> peers)
      : node_(node), waiting_(std::move(peers)) {
    messages_.resize(static_cast<size_t>(node.size()));
  }

  StepResult Step() override {
    const size_t before = waiting_.size();
    std::erase_if(waiting_, [this](int32_t peer) {
      return ReceiveMessage(LinkTo(node_, peer),
                            messages_[static_cast<size_t>(peer)]) ==
             ReceiveState::kMessage;
    });
    if (waiting_.empty()) {
      return StepResult::kDone;
    }
    return waiting_.size() < before ? StepResult::kMoved : StepResult::kStuck;
  }
  std::vector<int32_t> Blockers() const override { return waiting_; }

  Message& from(int32_t peer) { return messages_[static_cast<size_t>(peer)]; }

 private:
  const Node& node_;
  std::vector<int32_t> waiting_;
  std::vector<Message> messages_;
};

std::vector<int32_t> OtherRanks(const Node& node) {
  std::vector<int32_t> others;
  for (int32_t peer = 0; peer < node.size(); ++peer) {
    if (peer != node.rank()) {
      others.push_back(peer);
    }
  }
  return others;
}

// A peer that is gone is noticed while waiting for it.
void SendTo(const Node& node, int32_t peer, std::span<const std::byte> bytes,
            std::span<const int> descriptors) {
  (void)SendMessage(LinkTo(node, peer), bytes, descriptors);
  node.Ring(peer);
}

// The bytes of each rank's arena; 0 where it has none to share. The message
// holds the descriptors of the others, in order.
using ArenaSizes = std::vector<uint64_t>;

std::span<const std::byte> BytesOf(const ArenaSizes& sizes) {
  return std::as_bytes(std::span(sizes));
}

ArenaSizes ParseSizes(const Message& message, size_t count) {
  ArenaSizes sizes(count);
  size_t shared = 0;
  if (message.bytes.size() == count * sizeof(uint64_t)) {
    std::memcpy(sizes.data(), message.bytes.data(), message.bytes.size());
    for (const uint64_t size : sizes) {
      shared += size > 0 ? 1 : 0;
    }
  }
  if (message.bytes.size() != count * sizeof(uint64_t) ||
      message.descriptors.size() != shared) {
    throw Error(ErrorCode::kResourceExhausted,
                "not all descriptors of published arenas came: raise the "
                "limit of open files (ulimit -n)");
  }
  return sizes;
}

// Maps what a message lists, but not this rank's own.
std::vector<tier::SharedMemory> MapAll(const Node& node,
                                       const ArenaSizes& sizes,
                                       std::vector<os::FileDescriptor>& all) {
  std::vector<tier::SharedMemory> mapped(sizes.size());
  auto next = all.begin();
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] == 0) {
      continue;
    }
    if (static_cast<int32_t>(rank) != node.rank()) {
      mapped[rank] = tier::SharedMemory::Adopt(std::move(*next), sizes[rank],
                                               tier::Access::kRead);
    }
    ++next;
  }
  return mapped;
}

std::vector<tier::SharedMemory> GatherAsHost(Node& node, int own_fd,
                                             uint64_t own_bytes) {
  const std::vector<int32_t> others = OtherRanks(node);
  ReceiveFrom receive(node, others);
  node.Run(receive);
  ArenaSizes sizes = {own_bytes};
  std::vector<os::FileDescriptor> owned(1);
  std::vector<int> numbers;
  if (own_bytes > 0) {
    numbers.push_back(own_fd);
  }
  for (const int32_t peer : others) {
    Message& message = receive.from(peer);
    sizes.push_back(ParseSizes(message, 1)[0]);
    if (sizes.back() > 0) {
      owned.push_back(std::move(message.descriptors[0]));
      numbers.push_back(owned.back().get());
    }
  }
  for (const int32_t peer : others) {
    SendTo(node, peer, BytesOf(sizes), numbers);
  }
  // The first stands for the own arena, which MapAll leaves alone.
  if (own_bytes == 0) {
    owned.erase(owned.begin());
  }
  return MapAll(node, sizes, owned);
}

std::vector<tier::SharedMemory> GatherAsGuest(Node& node, int own_fd,
                                              uint64_t own_bytes) {
  std::vector<int> numbers;
  if (own_bytes > 0) {
    numbers.push_back(own_fd);
  }
  SendTo(node, 0, BytesOf({own_bytes}), numbers);
  ReceiveFrom receive(node, {0});
  node.Run(receive);
  Message& message = receive.from(0);
  const ArenaSizes sizes =
      ParseSizes(message, static_cast<size_t>(node.size()));
  return MapAll(node, sizes, message.descriptors);
}

}  // namespace

std::vector<tier::SharedMemory> GatherArenas(Node& node, Arena& arena) {
  const int fd = arena.shared_fd();
  const uint64_t bytes = fd >= 0 ? arena.all_memory().size() : 0;
  return node.rank() == 0 ? GatherAsHost(node, fd, bytes)
                          : GatherAsGuest(node, fd, bytes);
}

Membership DuplicateMembership(Node& node) {
  const Membership& original = node.membership();
  Membership duplicate{.rank = original.rank,
                       .size = original.size,
                       .timeout = original.timeout,
                       .peers = original.peers};
  const uint64_t control_bytes = ControlBlock::SizeBytes(node.size());
  if (node.rank() != 0) {
    ReceiveFrom receive(node, {0});
    node.Run(receive);
    Message& message = receive.from(0);
    if (message.descriptors.size() != 2) {
      throw Error(ErrorCode::kResourceExhausted,
                  "the descriptors of a duplicate did not come: raise the "
                  "limit of open files (ulimit -n)");
    }
    duplicate.control = std::make_shared<tier::SharedMemory>(
        tier::SharedMemory::Adopt(std::move(message.descriptors[0]),
                                  control_bytes, tier::Access::kWrite));
    duplicate.links.push_back(std::move(message.descriptors[1]));
    return duplicate;
  }
  duplicate.control =
      std::make_shared<tier::SharedMemory>(tier::SharedMemory::Create(
          "muonstore control", control_bytes, tier::Access::kWrite));
  duplicate.links.resize(static_cast<size_t>(node.size()));
  constexpr std::byte kNothingToSay{1};
  for (const int32_t peer : OtherRanks(node)) {
    auto [mine, theirs] = SocketPair();
    const std::vector<int> numbers = {duplicate.control->fd(), theirs.get()};
    SendTo(node, peer, {&kNothingToSay, 1}, numbers);
    duplicate.links[static_cast<size_t>(peer)] = std::move(mine);
  }
  return duplicate;
}

}  // namespace muonstore::comm
