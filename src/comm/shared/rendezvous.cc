#include "src/comm/shared/rendezvous.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/comm/engine.h"
#include "src/comm/shared/control_block.h"
#include "src/comm/shared/local_socket.h"

namespace muonstore::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMaxNameBytes = 80;
constexpr milliseconds kRetry{2};

// "muonshm1", so that a stranger is not taken for a rank.
constexpr uint64_t kMagic = 0x316d68736e6f756d;

struct Hello {
  uint64_t magic = kMagic;
  int32_t rank = 0;
  int32_t size = 0;
};

// Rank 0's answer. Welcome: with the control block and a pidfd a rank.
struct Answer {
  int32_t welcome = 0;
  std::array<int32_t, kMaxRanksOfNode> pids{};
  // Why not.
  std::array<char, 400> reason{};
};

template <typename T>
std::span<const std::byte> BytesOf(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
bool Parse(const Message& message, T& value) {
  if (message.bytes.size() != sizeof(T)) {
    return false;
  }
  std::memcpy(&value, message.bytes.data(), sizeof(T));
  return true;
}

milliseconds LeftUntil(Clock::time_point deadline) {
  return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(
                                       deadline - Clock::now()));
}

void WaitReadable(std::vector<pollfd>& polled, Clock::time_point deadline) {
  ::poll(polled.data(), polled.size(),
         static_cast<int>(
             std::min(LeftUntil(deadline), milliseconds(60'000)).count()));
}

// Rank 0 at the door.
class Host {
 public:
  explicit Host(const SharedMemoryOptions& options)
      : options_(options),
        deadline_(Clock::now() + options.timeout),
        links_(static_cast<size_t>(options.size)),
        pids_(static_cast<size_t>(options.size), -1) {}

  Membership Gather() {
    pids_[0] = ::getpid();
    try {
      const os::FileDescriptor listener = Listen();
      while (num_present_ < options_.size) {
        Serve(listener);
      }
      return Welcome();
    } catch (const Error& error) {
      TurnAway(error.what());
      throw;
    }
  }

 private:
  os::FileDescriptor Listen() const {
    while (true) {
      os::FileDescriptor listener = ListenAt(options_.rendezvous);
      if (listener.valid()) {
        return listener;
      }
      if (LeftUntil(deadline_).count() == 0) {
        throw Error(
            ErrorCode::kUnavailable,
            StrCat("another rank 0 waits at the rendezvous '",
                   options_.rendezvous, "': give each job a name of its own"));
      }
      std::this_thread::sleep_for(kRetry);
    }
  }

  void Serve(const os::FileDescriptor& listener) {
    std::vector<pollfd> polled = {{listener.get(), POLLIN, 0}};
    for (const os::FileDescriptor& stranger : strangers_) {
      polled.push_back({stranger.get(), POLLIN, 0});
    }
    WaitReadable(polled, deadline_);
    if (LeftUntil(deadline_).count() == 0) {
      ThrowAbsent();
    }
    os::FileDescriptor next = AcceptFrom(listener);
    if (next.valid()) {
      strangers_.push_back(std::move(next));
    }
    std::vector<os::FileDescriptor> still_strangers;
    for (os::FileDescriptor& stranger : strangers_) {
      Message message;
      const ReceiveState state = ReceiveMessage(stranger, message);
      if (state == ReceiveState::kMessage) {
        Admit(std::move(stranger), message);
      } else if (state == ReceiveState::kNothingYet) {
        still_strangers.push_back(std::move(stranger));
      }
    }
    strangers_ = std::move(still_strangers);
  }

  void Admit(os::FileDescriptor socket, const Message& message) {
    Hello hello;
    const auto pid = PidOfSameUser(socket);
    if (!pid || !Parse(message, hello) || hello.magic != kMagic) {
      return;
    }
    // Told as well, should it not fit.
    const auto index = static_cast<size_t>(hello.rank);
    const bool known = hello.rank > 0 && hello.rank < options_.size;
    if (!known || hello.size != options_.size || links_[index].valid()) {
      misfits_.push_back(std::move(socket));
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("rank ", hello.rank, " of ", hello.size, " (pid ",
                         *pid, ") came to the rendezvous '",
                         options_.rendezvous, "' of ", options_.size,
                         known && hello.size == options_.size ? " ranks twice"
                                                              : " ranks"));
    }
    links_[index] = std::move(socket);
    pids_[index] = *pid;
    ++num_present_;
  }

  [[noreturn]] void ThrowAbsent() const {
    std::vector<int32_t> absent;
    for (int32_t rank = 1; rank < options_.size; ++rank) {
      if (!links_[static_cast<size_t>(rank)].valid()) {
        absent.push_back(rank);
      }
    }
    throw Error(
        ErrorCode::kUnavailable,
        StrCat("of ", options_.size,
               " ranks, these did not come to "
               "the rendezvous '",
               options_.rendezvous, "' within ", options_.timeout.count(),
               " ms: ", FormatRanges(absent)));
  }

  Membership Welcome() {
    Membership membership{
        .rank = 0, .size = options_.size, .timeout = options_.timeout};
    membership.control =
        std::make_shared<tier::SharedMemory>(tier::SharedMemory::Create(
            "muonstore control", ControlBlock::SizeBytes(options_.size),
            tier::Access::kWrite));
    std::vector<Peer> peers;
    std::vector<int> descriptors = {membership.control->fd()};
    Answer answer;
    answer.welcome = 1;
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      peers.push_back({pids_[rank], OpenPidfd(pids_[rank])});
      descriptors.push_back(peers.back().pidfd.get());
      answer.pids[rank] = pids_[rank];
    }
    for (size_t rank = 1; rank < links_.size(); ++rank) {
      // One that is gone already is noticed at the first call.
      (void)SendMessage(links_[rank], BytesOf(answer), descriptors);
    }
    membership.peers = std::make_shared<const PeerWatch>(std::move(peers));
    membership.links = std::move(links_);
    return membership;
  }

  void TurnAway(const std::string& reason) const {
    Answer answer;
    reason.copy(answer.reason.data(), answer.reason.size() - 1);
    for (const auto* sockets : {&links_, &misfits_}) {
      for (const os::FileDescriptor& socket : *sockets) {
        if (socket.valid()) {
          (void)SendMessage(socket, BytesOf(answer), {});
        }
      }
    }
  }

  const SharedMemoryOptions& options_;
  Clock::time_point deadline_;
  int32_t num_present_ = 1;
  std::vector<os::FileDescriptor> strangers_;
  std::vector<os::FileDescriptor> misfits_;
  std::vector<os::FileDescriptor> links_;
  std::vector<int> pids_;
};

// Any other rank.
class Guest {
 public:
  explicit Guest(const SharedMemoryOptions& options)
      : options_(options), deadline_(Clock::now() + options.timeout) {}

  Membership Join() {
    while (true) {
      os::FileDescriptor link = ConnectTo(options_.rendezvous);
      Message message;
      // Somebody else's listener, or one that closes, is not ours: once more.
      if (link.valid() && PidOfSameUser(link) && Ask(link, message)) {
        return Accept(std::move(link), message);
      }
      if (LeftUntil(deadline_).count() == 0) {
        throw Error(
            ErrorCode::kUnavailable,
            StrCat("rank ", options_.rank,
                   " did not get through to "
                   "rank 0 at the rendezvous '",
                   options_.rendezvous, "' within ", options_.timeout.count(),
                   " ms: are all ranks on this node?"));
      }
      std::this_thread::sleep_for(kRetry);
    }
  }

 private:
  bool Ask(const os::FileDescriptor& link, Message& answer) const {
    if (!SendMessage(link, BytesOf(Hello{kMagic, options_.rank, options_.size}),
                     {})) {
      return false;
    }
    while (LeftUntil(deadline_).count() > 0) {
      std::vector<pollfd> polled = {{link.get(), POLLIN, 0}};
      WaitReadable(polled, deadline_);
      const ReceiveState state = ReceiveMessage(link, answer);
      if (state != ReceiveState::kNothingYet) {
        return state == ReceiveState::kMessage;
      }
    }
    return false;
  }

  Membership Accept(os::FileDescriptor link, Message& message) const {
    Answer answer;
    if (!Parse(message, answer)) {
      throw Error(ErrorCode::kUnavailable,
                  "rank 0's answer is of another version of muonstore");
    }
    if (answer.welcome == 0) {
      throw Error(ErrorCode::kUnavailable,
                  StrCat("rank 0 says: ", std::string(answer.reason.data())));
    }
    Membership membership{.rank = options_.rank,
                          .size = options_.size,
                          .timeout = options_.timeout};
    const auto num_ranks = static_cast<size_t>(options_.size);
    if (message.descriptors.size() != num_ranks + 1) {
      throw Error(ErrorCode::kResourceExhausted,
                  "not all descriptors of the peers came: raise the limit of "
                  "open files (ulimit -n)");
    }
    membership.control =
        std::make_shared<tier::SharedMemory>(tier::SharedMemory::Adopt(
            std::move(message.descriptors[0]),
            ControlBlock::SizeBytes(options_.size), tier::Access::kWrite));
    std::vector<Peer> peers;
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      peers.push_back(
          {answer.pids[rank], std::move(message.descriptors[rank + 1])});
    }
    membership.peers = std::make_shared<const PeerWatch>(std::move(peers));
    membership.links.push_back(std::move(link));
    return membership;
  }

  const SharedMemoryOptions& options_;
  Clock::time_point deadline_;
};

void RequireOptions(const SharedMemoryOptions& options) {
  if (options.size < 1 || options.size > kMaxRanksOfNode || options.rank < 0 ||
      options.rank >= options.size) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("rank ", options.rank, " of ", options.size,
                       ": a node has 1 to ", kMaxRanksOfNode,
                       " ranks, counted from 0"));
  }
  if (options.rendezvous.size() > kMaxNameBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the rendezvous has ", options.rendezvous.size(),
                       " bytes; ", kMaxNameBytes, " are possible"));
  }
  RequireTimeout(options.timeout);
}

}  // namespace

Membership Meet(const SharedMemoryOptions& options) {
  RequireOptions(options);
  return options.rank == 0 ? Host(options).Gather() : Guest(options).Join();
}

}  // namespace muonstore::comm
