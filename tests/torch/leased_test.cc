// Tensors over the memory of a real store.
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "muonstore/store.h"
#include "muonstore/torch.h"

namespace muonstore {
namespace {

constexpr int64_t kRows = 12;
constexpr int64_t kCols = 5;

// One rank with one parameter whose element i is i.
std::unique_ptr<StateStore> CountedStore(const MatrixLayout& layout) {
  const std::vector<ParameterSpec> specs = {
      {.name = "w", .shape = Shape({kRows, kCols}), .layout = layout}};
  auto store = std::make_unique<StateStore>(
      specs, Partitioning::Build(specs, {.stage = 2, .num_ranks = 1}),
      StoreOptions{});
  std::vector<float> values(kRows * kCols);
  std::iota(values.begin(), values.end(), 0.0F);
  for (const char* kind : {"master", "momentum", "weight"}) {
    store->Set("w", kind, values);
  }
  return store;
}

std::shared_ptr<ReadLease> Read(StateStore& store, const std::string& kind) {
  return std::make_shared<ReadLease>(store.Read("w", kind));
}

at::Tensor Counted() {
  return at::arange(kRows * kCols).to(at::kFloat).view({kRows, kCols});
}

TEST(LeasedTensor, WholeMatrix) {
  const auto store = CountedStore(MatrixLayout::Whole());
  EXPECT_TRUE(at::equal(WholeTensor(Read(*store, "momentum")), Counted()));
  EXPECT_TRUE(
      at::equal(MatrixTensor(Read(*store, "master"), 0, 0, 1)[0], Counted()));
  const at::Tensor weight = WholeTensor(Read(*store, "weight"));
  EXPECT_EQ(weight.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(weight, Counted().to(at::kBFloat16)));
}

TEST(LeasedTensor, HeadsAreBlocksOfRows) {
  const auto store = CountedStore(MatrixLayout::PerHead(4));
  const at::Tensor heads = MatrixTensor(Read(*store, "momentum"), 0, 1, 2);
  EXPECT_TRUE(at::equal(heads, Counted().view({4, 3, kCols}).narrow(0, 1, 2)));
}

TEST(LeasedTensor, PackedRowsAreOneBatchABlock) {
  const auto store = CountedStore(MatrixLayout::PackedRows({2, 3, 7}));
  const auto lease = Read(*store, "momentum");
  EXPECT_TRUE(
      at::equal(MatrixTensor(lease, 1, 0, 1)[0], Counted().narrow(0, 2, 3)));
  EXPECT_TRUE(
      at::equal(MatrixTensor(lease, 2, 0, 1)[0], Counted().narrow(0, 5, 7)));
}

TEST(LeasedTensor, NothingIsCopied) {
  const auto store = CountedStore(MatrixLayout::Whole());
  const auto lease = Read(*store, "momentum");
  EXPECT_EQ(WholeTensor(lease).const_data_ptr(),
            lease->pieces().at(0).data.data());
}

TEST(LeasedTensor, ATensorHoldsItsLease) {
  const auto store = CountedStore(MatrixLayout::Whole());
  at::Tensor momentum = WholeTensor(Read(*store, "momentum"));
  EXPECT_THROW(store->Write("w", "momentum"), Error);
  momentum.reset();
  store->Write("w", "momentum").Commit();
  EXPECT_EQ(store->generation("w", "momentum"), 2U);
}

TEST(LeasedTensor, ACommittedWriteIsSeen) {
  const auto store = CountedStore(MatrixLayout::Whole());
  const auto lease =
      std::make_shared<WriteLease>(store->Write("w", "momentum"));
  WholeTensor(lease).neg_();
  lease->Commit();
  EXPECT_TRUE(at::equal(WholeTensor(Read(*store, "momentum")), -Counted()));
}

TEST(LeasedTensor, ADroppedWriteIsNot) {
  const auto store = CountedStore(MatrixLayout::Whole());
  {
    const auto lease =
        std::make_shared<WriteLease>(store->Write("w", "momentum"));
    MatrixTensor(lease, 0, 0, 1).zero_();
  }
  EXPECT_TRUE(at::equal(WholeTensor(Read(*store, "momentum")), Counted()));
}

TEST(LeasedTensor, AGatheredTensorGivesItsMemoryAway) {
  const auto store = CountedStore(MatrixLayout::Whole());
  GatheredTensor gathered = store->Gather("w", "momentum");
  const std::byte* memory = gathered.data.data();
  const at::Tensor tensor = AsTensor(std::move(gathered));
  EXPECT_EQ(tensor.const_data_ptr(), memory);
  EXPECT_TRUE(at::equal(tensor, Counted()));
}

TEST(LeasedTensor, AMatrixThatIsNotThereIsAnError) {
  const auto store = CountedStore(MatrixLayout::PerHead(4));
  EXPECT_THROW(MatrixTensor(Read(*store, "momentum"), 0, 3, 2), Error);
  EXPECT_THROW(MatrixTensor(Read(*store, "momentum"), 1, 0, 1), Error);
}

}  // namespace
}  // namespace muonstore
