// One rank's side of an exchange that all ranks make up from the same seed.
//
// What: which rank sends how many bytes to which, and how sender and receiver
//   cut them, follows from the seed alone. Each 8 bytes of a stream name the
//   stream and their place in it, so that a displaced byte shows.
// Ownership: owns what it sends and receives; of an arena it uses the memory.
#ifndef MUONSTORE_TESTS_CONFORMANCE_PLANNED_EXCHANGE_H_
#define MUONSTORE_TESTS_CONFORMANCE_PLANNED_EXCHANGE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "muonstore/communicator.h"

namespace muonstore::conformance {

struct ExchangeShape {
  uint64_t seed = 0;
  // Bytes from one rank to another; some pairs have none.
  uint64_t max_stream_bytes = 0;
  // Pieces of a stream at each end, empty ones included.
  int32_t max_pieces = 1;
};

class PlannedExchange {
 public:
  // Every other stream is sent from `arena_memory` while there is room.
  PlannedExchange(int32_t rank, int32_t size, const ExchangeShape& shape,
                  std::span<std::byte> arena_memory = {});

  const ExchangePlan& plan() const { return plan_; }
  uint64_t bytes_from_others() const { return bytes_from_others_; }
  // All pieces hold what the peers sent, and nothing around them changed.
  void CheckReceived() const;

 private:
  struct Stream;

  void AddSends(const Stream& stream, std::span<std::byte> memory);
  void AddReceives(const Stream& stream);

  struct Received {
    std::vector<std::byte> memory;
    std::vector<std::byte> expected;
  };

  int32_t rank_;
  ExchangePlan plan_;
  uint64_t bytes_from_others_ = 0;
  std::vector<std::vector<std::byte>> sent_;
  std::vector<Received> received_;
};

}  // namespace muonstore::conformance

#endif  // MUONSTORE_TESTS_CONFORMANCE_PLANNED_EXCHANGE_H_
