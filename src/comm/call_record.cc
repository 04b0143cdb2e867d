#include "src/comm/call_record.h"

#include <algorithm>

#include "src/base/str.h"

namespace muonstore::comm {
namespace {

// [kind, detail, size, bytes sent to each rank, bytes received from each].
constexpr size_t kDetail = 1;
constexpr size_t kSize = 2;
constexpr size_t kSent = 3;

std::string Describe(std::span<const uint64_t> record) {
  std::string text(CallKindName(static_cast<CallKind>(record[0])));
  return StrCat(text, " (detail ", record[kDetail], ", size ", record[kSize],
                ")");
}

}  // namespace

std::string_view CallKindName(CallKind kind) {
  switch (kind) {
    case CallKind::kExchange:
      return "exchange";
    case CallKind::kAllReduce:
      return "all-reduce";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kPublish:
      return "publish";
    case CallKind::kWithdraw:
      return "withdraw";
    case CallKind::kDuplicate:
      return "duplicate";
  }
  return "unknown call";
}

size_t CallRecord::LengthFor(int32_t num_ranks) {
  return kSent + 2 * static_cast<size_t>(num_ranks);
}

uint64_t CallRecord::SentBytes(std::span<const uint64_t> numbers, int32_t to) {
  return numbers[kSent + static_cast<size_t>(to)];
}

CallRecord::CallRecord(CallKind kind, uint64_t detail, uint64_t size,
                       int32_t num_ranks)
    : numbers_(LengthFor(num_ranks)) {
  numbers_[0] = static_cast<uint64_t>(kind);
  numbers_[kDetail] = detail;
  numbers_[kSize] = size;
}

CallRecord CallRecord::ForExchange(const ExchangePlan& plan,
                                   int32_t num_ranks) {
  CallRecord record(CallKind::kExchange, 0, 0, num_ranks);
  for (const SendPiece& piece : plan.sends) {
    record.numbers_[kSent + static_cast<size_t>(piece.peer)] +=
        piece.data.size();
  }
  const size_t received = kSent + static_cast<size_t>(num_ranks);
  for (const ReceivePiece& piece : plan.receives) {
    record.numbers_[received + static_cast<size_t>(piece.peer)] +=
        piece.data.size();
  }
  return record;
}

std::optional<std::string> FindDisagreement(uint64_t number, int32_t num_ranks,
                                            const RecordOfRank& record_of) {
  const auto first = record_of(0);
  for (int32_t rank = 1; rank < num_ranks; ++rank) {
    const auto record = record_of(rank);
    if (!std::equal(first.begin(), first.begin() + kSent, record.begin())) {
      return StrCat("the ranks disagree about call ", number, ": rank 0 calls ",
                    Describe(first), ", rank ", rank, " ", Describe(record));
    }
  }
  for (int32_t from = 0; from < num_ranks; ++from) {
    for (int32_t to = 0; to < num_ranks; ++to) {
      const uint64_t sent = CallRecord::SentBytes(record_of(from), to);
      const uint64_t expected =
          record_of(to)[kSent + static_cast<size_t>(num_ranks + from)];
      if (sent != expected) {
        return StrCat("the ranks disagree about exchange ", number, ": rank ",
                      from, " sends ", sent, " bytes to rank ", to,
                      ", which expects ", expected);
      }
    }
  }
  return std::nullopt;
}

}  // namespace muonstore::comm
