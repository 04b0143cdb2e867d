#include "src/comm/call_record.h"

#include <array>

#include <gtest/gtest.h>

namespace muonstore::comm {
namespace {

std::optional<std::string> Compare(const std::vector<CallRecord>& records) {
  return FindDisagreement(17, static_cast<int32_t>(records.size()),
                          [&](int32_t rank) {
                            return records[static_cast<size_t>(rank)].numbers();
                          });
}

// Sends and receives `bytes[peer]`.
CallRecord Exchange(const std::vector<size_t>& sent,
                    const std::vector<size_t>& received) {
  static std::array<std::byte, 100> memory{};
  ExchangePlan plan;
  for (size_t peer = 0; peer < sent.size(); ++peer) {
    const auto rank = static_cast<int32_t>(peer);
    plan.sends.push_back({rank, std::span(memory).first(sent[peer])});
    plan.receives.push_back({rank, std::span(memory).first(received[peer])});
  }
  return CallRecord::ForExchange(plan, static_cast<int32_t>(sent.size()));
}

TEST(CallRecord, EqualCallsAgree) {
  const CallRecord barrier(CallKind::kBarrier, 0, 0, 3);
  EXPECT_EQ(Compare({barrier, barrier, barrier}), std::nullopt);
}

TEST(CallRecord, AnotherKindIsNamedWithItsRank) {
  const CallRecord barrier(CallKind::kBarrier, 0, 0, 3);
  const CallRecord reduce(CallKind::kAllReduce, 2, 5, 3);
  EXPECT_EQ(Compare({barrier, barrier, reduce}),
            "the ranks disagree about call 17: rank 0 calls barrier (detail 0, "
            "size 0), rank 2 all-reduce (detail 2, size 5)");
}

TEST(CallRecord, DetailAndSizeCount) {
  const CallRecord one(CallKind::kBroadcast, 1, 8, 2);
  EXPECT_NE(Compare({one, CallRecord(CallKind::kBroadcast, 0, 8, 2)}),
            std::nullopt);
  EXPECT_NE(Compare({one, CallRecord(CallKind::kBroadcast, 1, 9, 2)}),
            std::nullopt);
}

TEST(CallRecord, SumsOfEachPairMustAgree) {
  EXPECT_EQ(Compare({Exchange({0, 4}, {0, 7}), Exchange({7, 1}, {4, 1})}),
            std::nullopt);
  EXPECT_EQ(Compare({Exchange({0, 4}, {0, 7}), Exchange({6, 1}, {4, 1})}),
            "the ranks disagree about exchange 17: rank 1 sends 6 bytes to "
            "rank 0, which expects 7");
}

TEST(CallRecord, AddsUpThePiecesOfAPeer) {
  std::array<std::byte, 9> memory{};
  const std::span<std::byte> all = memory;
  const CallRecord record = CallRecord::ForExchange(
      {{{1, all.first(2)}, {1, all.first(5)}, {0, all.first(1)}}, {}}, 2);
  EXPECT_EQ(CallRecord::SentBytes(record.numbers(), 1), 7U);
  EXPECT_EQ(CallRecord::SentBytes(record.numbers(), 0), 1U);
  EXPECT_EQ(record.numbers().size(), CallRecord::LengthFor(2));
}

TEST(CallRecord, EachKindHasANameOfItsOwn) {
  for (uint64_t kind = 1; kind < 7; ++kind) {
    EXPECT_NE(CallKindName(static_cast<CallKind>(kind)),
              CallKindName(static_cast<CallKind>(kind + 1)));
  }
  EXPECT_EQ(CallKindName(static_cast<CallKind>(99)), "unknown call");
}

}  // namespace
}  // namespace muonstore::comm
