#include "src/comm/plan.h"

#include <array>
#include <numeric>

#include <gtest/gtest.h>

#include "muonstore/error.h"

namespace muonstore::comm {
namespace {

std::vector<std::byte> Counting(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i + 1);
  }
  return bytes;
}

std::string Refusal(const ExchangePlan& plan, int32_t rank, int32_t size) {
  try {
    RequirePlan(plan, rank, size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(RequirePlan, TakesSelfSendsThatAddUp) {
  std::vector<std::byte> bytes = Counting(10);
  const std::span<std::byte> all = bytes;
  const ExchangePlan plan = {{{1, all.first(4)}, {1, all.first(2)}},
                             {{1, all.first(6)}}};
  EXPECT_EQ(Refusal(plan, 1, 2), "");
  // For another rank they are somebody else's sums.
  EXPECT_EQ(Refusal({{{1, all}}, {}}, 0, 2), "");
}

TEST(RequirePlan, NamesWhatMakesNoSense) {
  std::vector<std::byte> bytes = Counting(10);
  EXPECT_EQ(Refusal({{{2, bytes}}, {}}, 0, 2),
            "the exchange plan of rank 0 sends to rank 2, but there are 2 "
            "ranks");
  EXPECT_EQ(Refusal({{}, {{-1, bytes}}}, 0, 2),
            "the exchange plan of rank 0 receives from rank -1, but there are "
            "2 ranks");
  EXPECT_EQ(Refusal({{{1, bytes}}, {}}, 1, 2),
            "the exchange plan of rank 1 sends 10 bytes to itself and receives "
            "0");
}

TEST(PieceQueue, DropsEmptyPiecesAndCountsBytes) {
  const std::vector<std::byte> bytes = Counting(5);
  SendQueue queue;
  queue.Push({});
  queue.Push(std::span(bytes).first(3));
  queue.Push({});
  queue.Push(std::span(bytes).last(2));
  EXPECT_EQ(queue.left_bytes(), 5U);
  queue.Pop(3);
  EXPECT_EQ(queue.front().data(), bytes.data() + 3);
  queue.Pop(2);
  EXPECT_TRUE(queue.empty());
}

TEST(CopyPieces, FillsOtherCuts) {
  const std::vector<std::byte> bytes = Counting(9);
  std::vector<std::byte> out(9);
  SendQueue sends;
  sends.Push(std::span(bytes).first(2));
  sends.Push(std::span(bytes).subspan(2, 7));
  ReceiveQueue receives;
  receives.Push(std::span(out).first(5));
  receives.Push(std::span(out).subspan(5, 4));
  EXPECT_EQ(CopyPieces(sends, receives), 9U);
  EXPECT_EQ(out, bytes);
  EXPECT_TRUE(sends.empty() && receives.empty());
}

TEST(CopyPieces, StopsWhereEitherEnds) {
  const std::vector<std::byte> bytes = Counting(9);
  std::vector<std::byte> out(4);
  ReceiveQueue receives;
  receives.Push(out);
  EXPECT_EQ(CopyPieces(bytes, receives), 4U);
  EXPECT_EQ(CopyPieces(bytes, receives), 0U);
  EXPECT_EQ(out, Counting(4));
}

TEST(CopyPieces, MovesInPlace) {
  std::vector<std::byte> bytes = Counting(9);
  ReceiveQueue receives;
  receives.Push(bytes);
  CopyPieces(std::span<const std::byte>(bytes), receives);
  EXPECT_EQ(bytes, Counting(9));
}

TEST(TakeBytes, JoinsPieces) {
  const std::vector<std::byte> bytes = Counting(9);
  SendQueue sends;
  sends.Push(std::span(bytes).first(4));
  sends.Push(std::span(bytes).subspan(4, 5));
  std::vector<std::byte> out(6);
  TakeBytes(sends, out);
  EXPECT_EQ(out, Counting(6));
  EXPECT_EQ(sends.left_bytes(), 3U);
}

TEST(ByPeer, KeepsTheOrderOfEachPeersPieces) {
  std::vector<std::byte> bytes = Counting(6);
  const std::span<std::byte> all = bytes;
  const ExchangePlan plan = {
      {{1, all.subspan(3, 1)}, {0, all.first(2)}, {1, all.subspan(1, 1)}}, {}};
  auto sends = SendsByPeer(plan, 3);
  ASSERT_EQ(sends.size(), 3U);
  std::vector<std::byte> out(2);
  TakeBytes(sends[1], out);
  EXPECT_EQ(out, (std::vector<std::byte>{std::byte{4}, std::byte{2}}));
  EXPECT_EQ(sends[0].left_bytes(), 2U);
  EXPECT_TRUE(sends[2].empty());
}

}  // namespace
}  // namespace muonstore::comm
