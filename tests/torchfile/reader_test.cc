// The parts below the machine: bytes, memo, nodes, element order.

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/element_order.h"
#include "formats/torchfile/pickle_memo.h"
#include "formats/torchfile/pickle_reader.h"
#include "formats/torchfile/tree_builder.h"
#include "formats/torchfile/value.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile {
namespace {

std::string Numbered(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i + 4 <= size; i += 4) {
    const auto number = static_cast<uint32_t>(i);
    std::memcpy(bytes.data() + i, &number, 4);
  }
  return bytes;
}

TEST(PickleReader, CrossesItsBuffer) {
  const std::string bytes = Numbered(3 << 20);
  MemoryFile file(bytes);
  MemoryBudget budget(bytes.size());
  const size_t begin = 1001;
  const size_t end = bytes.size() - 77;
  PickleReader reader(file, begin, end, budget);
  std::string read;
  // Sizes that end before, at and behind the buffer's end.
  for (size_t i = 0; reader.remaining_bytes() > 0; ++i) {
    const size_t size = std::min<size_t>(
        reader.remaining_bytes(),
        std::vector<size_t>{1, 7, 4096, 131073, 262144, 400000}[i % 6]);
    EXPECT_EQ(reader.offset_bytes(), begin + read.size());
    switch (i % 3) {
      case 0:
        read += reader.ReadString(size);
        break;
      case 1:
        read += reader.ReadView(size);
        break;
      default:
        read += static_cast<char>(reader.ReadByte());
    }
  }
  EXPECT_EQ(read == bytes.substr(begin, end - begin), true);
  EXPECT_ERROR(reader.ReadByte(), ErrorCode::kDataLoss,
               "expected 1 more bytes, found 0");
}

TEST(PickleReader, Lines) {
  const std::string bytes = "a\n\n" + std::string(300000, 'x') + "\nlast";
  MemoryFile file(bytes);
  MemoryBudget budget(bytes.size());
  PickleReader reader(file, 0, bytes.size(), budget);
  EXPECT_EQ(reader.ReadLine(), "a");
  EXPECT_EQ(reader.ReadLine(), "");
  EXPECT_EQ(reader.ReadLine(), std::string(300000, 'x'));
  EXPECT_ERROR(reader.ReadLine(), ErrorCode::kDataLoss, "ends too early");
}

TEST(PickleReader, NumbersAreLittleEndian) {
  const std::string bytes = "\x01\x02\x03\x04\xff\xff\xff\xff";
  MemoryFile file(bytes);
  MemoryBudget budget(bytes.size());
  PickleReader reader(file, 0, bytes.size(), budget);
  EXPECT_EQ(reader.ReadNumber<uint32_t>(), 0x04030201u);
  EXPECT_EQ(reader.ReadNumber<int32_t>(), -1);
}

TEST(PickleMemo, DenseAndFarNumbers) {
  MemoryBudget budget(0);
  PickleMemo memo(budget);
  memo.Put(1, 10);
  memo.Put(100, 20);
  EXPECT_EQ(memo.Get(0), kNoNode);
  EXPECT_EQ(memo.Get(1), 10u);
  EXPECT_EQ(memo.Get(100), 20u);
  EXPECT_EQ(memo.Get(99), kNoNode);
  EXPECT_EQ(memo.num_entries(), 2u);
  // The dense part grows over the far entry, which stays.
  for (uint64_t i = 2; i < 100; ++i) {
    memo.Put(i, static_cast<NodeId>(i));
  }
  memo.Put(105, 30);
  EXPECT_EQ(memo.Get(100), 20u);
  EXPECT_EQ(memo.num_entries(), 101u);
  memo.Put(100, 21);
  EXPECT_EQ(memo.Get(100), 21u);
  EXPECT_EQ(memo.num_entries(), 101u);
  const uint64_t used = budget.used_bytes();
  memo.Put(~uint64_t{0} - 100, 7);
  EXPECT_EQ(memo.Get(~uint64_t{0} - 100), 7u);
  EXPECT_LE(budget.used_bytes(), used + 100);
}

TEST(TreeBuilder, SharesWhatCannotChange) {
  ValueTree tree;
  MemoryBudget budget(0);
  TreeBuilder builder(tree, budget);
  EXPECT_EQ(builder.None(), builder.None());
  EXPECT_EQ(builder.Bool(true), builder.Bool(true));
  EXPECT_NE(builder.Bool(true), builder.Bool(false));
  EXPECT_EQ(builder.Int(7), builder.Int(7));
  EXPECT_NE(builder.Int(-7), builder.Int(-7));
  EXPECT_EQ(builder.Tuple({}), builder.Tuple({}));
  EXPECT_EQ(builder.GlobalNamed("m", "n"), builder.GlobalNamed("m", "n"));
  EXPECT_NE(builder.GlobalNamed("m", "n"), builder.GlobalNamed("m.n", ""));
  EXPECT_NE(builder.Container(ValueType::kList),
            builder.Container(ValueType::kList));
  // A class on one empty tuple does not show on the others.
  const NodeId size = builder.TupleOf(builder.Tuple({}));
  builder.SetClass(size, 0, Construction::kReduce);
  EXPECT_EQ(Value(tree, builder.Tuple({})).cls(), nullptr);
}

// Tuples lie in chunks: none may be torn or moved, however long it is.
TEST(TreeBuilder, TuplesOfAllLengthsKeepTheirItems) {
  ValueTree tree;
  MemoryBudget budget(0);
  TreeBuilder builder(tree, budget);
  const std::vector<size_t> lengths = {1,
                                       kPoolChunkItems - 1,
                                       0,
                                       1,
                                       2,
                                       kPoolChunkItems,
                                       3,
                                       kPoolChunkItems + 1,
                                       5,
                                       7,
                                       kPoolChunkItems / 2 + 1,
                                       kPoolChunkItems / 2,
                                       1,
                                       3 * kPoolChunkItems,
                                       2};
  std::vector<NodeId> tuples;
  NodeId next = 1;
  for (const size_t length : lengths) {
    std::vector<NodeId> items(length);
    for (NodeId& item : items) {
      item = next++;
    }
    tuples.push_back(builder.Tuple(items));
  }
  const NodeId again = builder.TupleOf(tuples[7]);
  next = 1;
  for (size_t t = 0; t < tuples.size(); ++t) {
    const auto items = tree.Items(tuples[t]);
    ASSERT_EQ(items.size(), lengths[t]);
    for (const NodeId item : items) {
      ASSERT_EQ(item, next++);
    }
  }
  EXPECT_EQ(tree.Items(again).data(), tree.Items(tuples[7]).data());
}

TEST(TreeBuilder, LongsOfAllSizes) {
  ValueTree tree;
  MemoryBudget budget(0);
  TreeBuilder builder(tree, budget);
  const auto value = [&](const std::string& bytes) {
    return Value(tree, builder.Long(bytes));
  };
  EXPECT_EQ(value("").AsInt(), 0);
  EXPECT_EQ(value("\xff").AsInt(), -1);
  EXPECT_EQ(value(Bytes<int64_t>(INT64_MIN)).AsInt(), INT64_MIN);
  EXPECT_EQ(value(Bytes<int64_t>(INT64_MAX)).AsInt(), INT64_MAX);
  // Redundant sign bytes.
  EXPECT_EQ(value(Bytes<int64_t>(-5) + std::string(20, '\xff')).AsInt(), -5);
  EXPECT_EQ(value(Bytes<int64_t>(5) + std::string(20, '\0')).AsInt(), 5);
  const Value big = value(Bytes<int64_t>(-1) + std::string(2, '\0'));
  EXPECT_TRUE(big.is(ValueType::kBigInt));
  EXPECT_EQ(tree.Text(big.id()), Bytes<int64_t>(-1) + std::string(1, '\0'));
}

TEST(ElementOrder, SwapsComponents) {
  const auto swapped = [](DType dtype, std::string bytes) {
    SwapBytes(dtype, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  };
  EXPECT_EQ(swapped(DType::kU8, "abcd"), "abcd");
  EXPECT_EQ(swapped(DType::kBool, "abcd"), "abcd");
  EXPECT_EQ(swapped(DType::kF8E5M2, "abcd"), "abcd");
  EXPECT_EQ(swapped(DType::kBF16, "abcd"), "badc");
  EXPECT_EQ(swapped(DType::kC32, "abcd"), "badc");
  EXPECT_EQ(swapped(DType::kI32, "abcdefgh"), "dcbahgfe");
  EXPECT_EQ(swapped(DType::kC64, "abcdefgh"), "dcbahgfe");
  EXPECT_EQ(swapped(DType::kF64, "abcdefgh"), "hgfedcba");
  EXPECT_EQ(swapped(DType::kC128, "abcdefghABCDEFGH"), "hgfedcbaHGFEDCBA");
}

TEST(ElementOrder, LazyBitsOfEachWidth) {
  const auto resolved = [](DType dtype, bool conj, bool neg,
                           std::string bytes) {
    TensorInfo tensor;
    tensor.dtype = dtype;
    tensor.is_conj = conj;
    tensor.is_neg = neg;
    ResolveLazyBits(tensor, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  };
  const std::string zeros(16, '\0');
  std::string all_f16;
  std::string odd_f16;
  for (int i = 0; i < 8; ++i) {
    all_f16 += std::string("\0\x80", 2);
    odd_f16 += i % 2 == 1 ? std::string("\0\x80", 2) : std::string(2, '\0');
  }
  EXPECT_EQ(resolved(DType::kF16, false, true, zeros), all_f16);
  EXPECT_EQ(resolved(DType::kC32, true, false, zeros), odd_f16);
  EXPECT_EQ(resolved(DType::kC32, true, false, odd_f16), zeros);
  EXPECT_EQ(resolved(DType::kC128, true, false, zeros),
            std::string(15, '\0') + "\x80");
  EXPECT_EQ(resolved(DType::kC128, true, true, zeros),
            std::string(7, '\0') + "\x80" + std::string(8, '\0'));
  EXPECT_EQ(resolved(DType::kF64, false, false, zeros), zeros);
}

}  // namespace
}  // namespace muonstore::torchfile
