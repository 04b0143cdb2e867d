#include "muonstore/lease.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/store.h"
#include "src/store/store_impl.h"
#include "tests/store/store_ranks.h"
#include "tests/tensor/error_of.h"

namespace muonstore {
namespace {

using ::testing::HasSubstr;
using testutil::RunConnectedRanks;
using testutil::SmallModel;
using testutil::UniqueValues;

constexpr const char* kName = "attn.qkv.weight";

class LeaseTest : public ::testing::Test {
 protected:
  LeaseTest()
      : model_(SmallModel()),
        store_(model_,
               Partitioning::Build(model_, {.stage = 2, .num_ranks = 1}), {}) {
    store_.Set(kName, "master", UniqueValues(model_[1], 0));
  }

  std::vector<float> Now() {
    const GatheredTensor tensor = store_.Gather(kName, "master");
    return {tensor.f32().begin(), tensor.f32().end()};
  }

  static float* Floats(const StatePiece<std::byte>& piece) {
    return reinterpret_cast<float*>(piece.data.data());
  }

  std::vector<ParameterSpec> model_;
  StateStore store_;
};

TEST_F(LeaseTest, ACommitMakesTheNextGeneration) {
  WriteLease lease = store_.Write(kName, "master");
  EXPECT_EQ(lease.generation(), 1U);
  Floats(lease.pieces().at(0))[5] = 42;
  lease.Commit();
  EXPECT_EQ(store_.generation(kName, "master"), 2U);
  EXPECT_EQ(Now()[5], 42);
}

TEST_F(LeaseTest, ADroppedLeaseRollsBack) {
  const std::vector<float> before = Now();
  {
    WriteLease lease = store_.Write(kName, "master");
    std::fill_n(Floats(lease.pieces().at(0)), 100, 7.0F);
  }
  EXPECT_EQ(Now(), before);
  EXPECT_EQ(store_.generation(kName, "master"), 1U);
}

TEST_F(LeaseTest, ReadersShareAndExcludeWriters) {
  const auto write = [&] { store_.Write(kName, "master"); };
  {
    const ReadLease first = store_.Read(kName, "master");
    const ReadLease second = store_.Read(kName, "master");
    EXPECT_EQ(CodeOf(write), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(write), HasSubstr("2 read leases"));
    // Another tensor of the same parameter is another matter.
    store_.Write(kName, "momentum").Commit();
  }
  write();
}

TEST_F(LeaseTest, AWriterExcludesAll) {
  const WriteLease writer = store_.Write(kName, "master");
  EXPECT_EQ(CodeOf([&] { store_.Read(kName, "master"); }),
            ErrorCode::kInvalidArgument);
  EXPECT_THAT(TextOf([&] { store_.Write(kName, "master"); }),
              HasSubstr("write lease"));
  EXPECT_THAT(TextOf([&] { store_.Close(); }), HasSubstr(kName));
}

TEST_F(LeaseTest, ACommittedLeaseIsOver) {
  WriteLease lease = store_.Write(kName, "master");
  lease.Commit();
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { lease.Commit(); }, [&] { lease.pieces(); },
           [&] { lease.Matrices(0, 0, 1); }}) {
    EXPECT_EQ(CodeOf(call), ErrorCode::kInvalidArgument);
  }
  // And it no longer stands in the way.
  store_.Write(kName, "master");
}

TEST_F(LeaseTest, AMovedLeaseIsReleasedOnce) {
  std::optional<ReadLease> kept;
  {
    ReadLease lease = store_.Read(kName, "master");
    kept.emplace(std::move(lease));
  }
  EXPECT_EQ(CodeOf([&] { store_.Write(kName, "master"); }),
            ErrorCode::kInvalidArgument);
  kept.reset();
  store_.Write(kName, "master");
}

TEST_F(LeaseTest, ALeaseThatWasMovedFromSaysSo) {
  WriteLease lease = store_.Write(kName, "master");
  WriteLease kept = std::move(lease);
  // NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): this is
  // what is tested.
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { lease.Commit(); }, [&] { lease.pieces(); },
           [&] { lease.Matrices(0, 0, 1); },
           [&] { static_cast<void>(lease.key()); },
           [&] { static_cast<void>(lease.shape()); },
           [&] { static_cast<void>(lease.dtype()); },
           [&] { static_cast<void>(lease.generation()); }}) {
    EXPECT_EQ(CodeOf(call), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(call), HasSubstr("moved from"));
  }
  // NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
  kept.Commit();
}

TEST_F(LeaseTest, NoneIsGivenWhileAStepRuns) {
  LeaseTable& leases = store_.impl().leases;
  {
    const LeaseTable::Exclusive step(leases, "the test");
    const auto read = [&] { store_.Read(kName, "master"); };
    EXPECT_EQ(CodeOf(read), ErrorCode::kInvalidArgument);
    EXPECT_THAT(TextOf(read), HasSubstr("a step is running"));
    EXPECT_EQ(CodeOf([&] { store_.Write(kName, "momentum"); }),
              ErrorCode::kInvalidArgument);
  }
  const ReadLease lease = store_.Read(kName, "master");
  EXPECT_EQ(CodeOf([&] { LeaseTable::Exclusive step(leases, "the test"); }),
            ErrorCode::kInvalidArgument);
}

// The elements of a view of one matrix, row by row.
std::vector<float> ElementsOf(const StridedView<const std::byte>& view) {
  const auto* data = reinterpret_cast<const float*>(view.data);
  std::vector<float> elements;
  for (int64_t i = 0; i < view.rows; ++i) {
    const float* row = data + i * view.row_stride;
    elements.insert(elements.end(), row, row + view.cols);
  }
  return elements;
}

TEST_F(LeaseTest, MatricesAreViewsOfTheStoresMemory) {
  const ReadLease lease = store_.Read(kName, "master");
  const std::vector<float> whole = UniqueValues(model_[1], 0);
  for (const int64_t block : {0, 1, 2}) {
    const auto view = lease.Matrices(static_cast<int32_t>(block), 0, 1);
    EXPECT_EQ(view.block_rows, 8);
    const auto first = whole.begin() + block * 64;
    EXPECT_EQ(ElementsOf(view), std::vector<float>(first, first + 64));
    EXPECT_EQ(view.data - lease.pieces().at(0).data.data(), block * 64 * 4);
  }
}

TEST_F(LeaseTest, ABatchOfExpertsIsOneView) {
  store_.Set("experts.weight", "momentum", UniqueValues(model_[4], 3));
  const ReadLease lease = store_.Read("experts.weight", "momentum");
  const auto view = lease.Matrices(0, 1, 2);
  EXPECT_EQ(view.batch, 2);
  const auto* data = reinterpret_cast<const float*>(view.data);
  EXPECT_EQ(data[view.batch_stride + 2 * view.row_stride + 3],
            UniqueValues(model_[4], 3)[2 * 20 + 2 * 4 + 3]);
}

TEST_F(LeaseTest, MatricesThatDoNotExistAreRefused) {
  const ReadLease lease = store_.Read(kName, "master");
  EXPECT_EQ(CodeOf([&] { lease.Matrices(3, 0, 1); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { lease.Matrices(0, 0, 2); }),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf([&] { lease.Matrices(-1, 0, 1); }),
            ErrorCode::kInvalidArgument);
}

// On two ranks, each with a half of every parameter.
void WithHalves(const std::function<void(StateStore&, int32_t rank)>& check) {
  RunConnectedRanks(2, [&](const auto& communicator) {
    const auto model = SmallModel();
    StateStore store(model,
                     Partitioning::Build(model, {.stage = 3, .num_ranks = 2}),
                     {.communicator = communicator});
    check(store, communicator->rank());
  });
}

TEST(LeaseRanksTest, ASpreadMatrixNamesItsRanks) {
  WithHalves([](StateStore& store, int32_t rank) {
    const ReadLease lease = store.Read("mlp.up.weight", "master");
    const auto view = [&] { lease.Matrices(0, 0, 1); };
    EXPECT_THAT(TextOf(view), HasSubstr("ranks 0-1"));
    EXPECT_THAT(TextOf(view), HasSubstr("Gather"));
    // A half of 54 elements each.
    EXPECT_EQ(lease.pieces().at(0).fragment.length, 27);
    EXPECT_EQ(lease.pieces().at(0).fragment.tensor_offset, 27 * rank);
  });
}

TEST(LeaseRanksTest, AMatrixThatIsNotSpreadIsAView) {
  WithHalves([](StateStore& store, int32_t rank) {
    // The first expert lies whole on rank 0.
    const ReadLease experts = store.Read("experts.weight", "master");
    const auto view = [&] { return experts.Matrices(0, 0, 1); };
    if (rank == 0) {
      EXPECT_EQ(view().rows, 5);
    } else {
      EXPECT_EQ(CodeOf([&] { view(); }), ErrorCode::kInvalidArgument);
    }
  });
}

}  // namespace
}  // namespace muonstore
