// What a rank says about a call before anything moves, so that ranks which
// disagree find out instead of waiting for each other.
//
// What: numbers, of a length that depends on the number of ranks alone.
#ifndef MUONSTORE_SRC_COMM_CALL_RECORD_H_
#define MUONSTORE_SRC_COMM_CALL_RECORD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/communicator.h"

namespace muonstore::comm {

enum class CallKind : uint64_t {
  kExchange = 1,
  kAllReduce,
  kBroadcast,
  kBarrier,
  kPublish,
  kWithdraw,
  kDuplicate,
};

std::string_view CallKindName(CallKind kind);

class CallRecord {
 public:
  // Numbers in a record.
  static size_t LengthFor(int32_t num_ranks);

  static uint64_t SentBytes(std::span<const uint64_t> numbers, int32_t to);

  // `detail` and `size` are equal on all ranks: operation or root, and bytes.
  CallRecord(CallKind kind, uint64_t detail, uint64_t size, int32_t num_ranks);
  static CallRecord ForExchange(const ExchangePlan& plan, int32_t num_ranks);

  CallKind kind() const { return static_cast<CallKind>(numbers_[0]); }
  std::span<const uint64_t> numbers() const { return numbers_; }

 private:
  std::vector<uint64_t> numbers_;
};

// The numbers of each rank's record.
using RecordOfRank = std::function<std::span<const uint64_t>(int32_t rank)>;

// Says how the records of call `number` disagree; the same text on every rank.
std::optional<std::string> FindDisagreement(uint64_t number, int32_t num_ranks,
                                            const RecordOfRank& record_of);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_CALL_RECORD_H_
