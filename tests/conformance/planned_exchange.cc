#include "tests/conformance/planned_exchange.h"

#include <algorithm>
#include <random>

#include "src/base/str.h"
#include "tests/conformance/check.h"

namespace muonstore::conformance {
namespace {

constexpr size_t kGuardBytes = 5;
constexpr std::byte kGuard{0xa5};

std::byte ByteOf(uint64_t stream_id, uint64_t index) {
  const uint64_t word = (stream_id << 32) | (index / 8);
  return static_cast<std::byte>(word >> (8 * (index % 8)));
}

// Lengths of pieces with the sum `bytes`; some are empty.
std::vector<uint64_t> Cut(uint64_t bytes, int32_t max_pieces,
                          std::mt19937_64& random) {
  std::uniform_int_distribution<int32_t> count(1, max_pieces);
  std::uniform_int_distribution<uint64_t> place(0, bytes);
  std::vector<uint64_t> cuts(static_cast<size_t>(count(random)) - 1);
  std::ranges::generate(cuts, [&] { return place(random); });
  std::ranges::sort(cuts);
  cuts.push_back(bytes);
  std::vector<uint64_t> lengths;
  uint64_t begin = 0;
  for (const uint64_t end : cuts) {
    lengths.push_back(end - begin);
    begin = end;
  }
  return lengths;
}

}  // namespace

struct PlannedExchange::Stream {
  int32_t from;
  int32_t to;
  uint64_t id;
  uint64_t bytes;
  std::vector<uint64_t> sent_cut;
  std::vector<uint64_t> received_cut;
};

PlannedExchange::PlannedExchange(int32_t rank, int32_t size,
                                 const ExchangeShape& shape,
                                 std::span<std::byte> arena_memory)
    : rank_(rank) {
  std::mt19937_64 random(shape.seed);
  std::uniform_int_distribution<uint64_t> length(0, shape.max_stream_bytes);
  for (int32_t from = 0; from < size; ++from) {
    for (int32_t to = 0; to < size; ++to) {
      const bool empty = random() % 5 == 0;
      const uint64_t bytes = empty ? 0 : length(random);
      const auto pair = static_cast<uint64_t>(from * size + to);
      const Stream stream{from,
                          to,
                          shape.seed * 1000 + pair + 1,
                          bytes,
                          Cut(bytes, shape.max_pieces, random),
                          Cut(bytes, shape.max_pieces, random)};
      if (from == rank) {
        const bool in_arena = pair % 2 == 0 && bytes <= arena_memory.size();
        AddSends(stream,
                 in_arena ? arena_memory.first(bytes) : std::span<std::byte>());
        arena_memory = arena_memory.subspan(in_arena ? bytes : 0);
      }
      if (to == rank) {
        AddReceives(stream);
      }
    }
  }
}

void PlannedExchange::AddSends(const Stream& stream,
                               std::span<std::byte> memory) {
  if (memory.size() < stream.bytes) {
    memory = sent_.emplace_back(stream.bytes);
  }
  for (uint64_t index = 0; index < stream.bytes; ++index) {
    memory[index] = ByteOf(stream.id, index);
  }
  for (const uint64_t length : stream.sent_cut) {
    plan_.sends.push_back({stream.to, memory.first(length)});
    memory = memory.subspan(length);
  }
}

void PlannedExchange::AddReceives(const Stream& stream) {
  const size_t total =
      stream.bytes + (stream.received_cut.size() + 1) * kGuardBytes;
  Received& received = received_.emplace_back();
  received.memory.assign(total, kGuard);
  received.expected.assign(total, kGuard);
  size_t place = kGuardBytes;
  uint64_t index = 0;
  for (const uint64_t length : stream.received_cut) {
    plan_.receives.push_back(
        {stream.from, std::span(received.memory).subspan(place, length)});
    for (uint64_t i = 0; i < length; ++i, ++index) {
      received.expected[place + i] = ByteOf(stream.id, index);
    }
    place += length + kGuardBytes;
  }
  bytes_from_others_ += stream.from == rank_ ? 0 : stream.bytes;
}

void PlannedExchange::CheckReceived() const {
  for (const Received& received : received_) {
    const auto [found, expected] =
        std::ranges::mismatch(received.memory, received.expected);
    CheckThat(found == received.memory.end(),
              StrCat("rank ", rank_, ": wrong byte at ",
                     found - received.memory.begin(), " of ",
                     received.memory.size()));
  }
}

}  // namespace muonstore::conformance
