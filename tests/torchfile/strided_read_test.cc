// Reading ranges of views: against a loop over all indices, and in bounded
// memory.

#include "formats/torchfile/strided_read.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/torch_file.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::torchfile {
namespace {

TensorInfo View(DType dtype, std::vector<int64_t> dims,
                std::vector<int64_t> strides, int64_t offset = 0) {
  TensorInfo tensor;
  tensor.dtype = dtype;
  tensor.shape = Shape(std::move(dims));
  tensor.strides = std::move(strides);
  tensor.storage_offset = offset;
  return tensor;
}

// Where element `index` (row-major) lies in the storage.
int64_t StorageIndex(const TensorInfo& tensor, int64_t index) {
  int64_t at = tensor.storage_offset;
  const auto& dims = tensor.shape.dims();
  for (size_t d = dims.size(); d-- > 0;) {
    at += index % dims[d] * tensor.strides[d];
    index /= dims[d];
  }
  return at;
}

// Different bytes in every element.
std::string Payload(size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  uint64_t state = 88172645463325252ull;
  for (size_t i = 0; i < num_bytes; i += 8) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + i, &state, std::min<size_t>(8, num_bytes - i));
  }
  return bytes;
}

void ExpectRange(MemoryFile& file, const std::string& storage,
                 const TensorInfo& tensor, int64_t first, int64_t count) {
  const auto item = static_cast<size_t>(SizeBytes(tensor.dtype));
  std::string read(static_cast<size_t>(count) * item, '\xEE');
  ReadStrided(file, 0, tensor, first, std::as_writable_bytes(std::span(read)));
  std::string expected;
  for (int64_t i = first; i < first + count; ++i) {
    expected += storage.substr(
        static_cast<size_t>(StorageIndex(tensor, i)) * item, item);
  }
  EXPECT_EQ(read == expected, true)
      << tensor.shape.ToString() << " from " << first << " count " << count;
}

TEST(StridedRead, RandomViewsAndRanges) {
  std::mt19937_64 random(7);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const DType dtypes[] = {DType::kU8, DType::kBF16, DType::kF32, DType::kF64,
                          DType::kC128};
  for (int round = 0; round < 3000; ++round) {
    std::vector<int64_t> dims(static_cast<size_t>(below(5)));
    std::vector<int64_t> strides(dims.size());
    // A permutation of a padded layout; sometimes strides of 0 or any.
    std::vector<size_t> order(dims.size());
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), random);
    int64_t stride = 1 + below(2);
    for (const size_t d : order) {
      dims[d] = 1 + below(7);
      strides[d] = below(8) == 0 ? below(9) : stride;
      stride *= dims[d] + (below(4) == 0 ? below(3) : 0);
    }
    const TensorInfo tensor = View(dtypes[below(5)], dims, strides, below(5));
    int64_t end = tensor.storage_offset + 1;
    for (size_t d = 0; d < dims.size(); ++d) {
      end += (dims[d] - 1) * strides[d];
    }
    const std::string storage =
        Payload(static_cast<size_t>(end * SizeBytes(tensor.dtype)));
    MemoryFile file(storage);
    const int64_t total = tensor.shape.num_elements();
    const int64_t first = below(total);
    ExpectRange(file, storage, tensor, first, 1 + below(total - first));
    ExpectRange(file, storage, tensor, 0, total);
  }
}

TEST(StridedRead, BoxesCoverTheRangeOnce) {
  const TensorInfo tensor = View(DType::kF32, {3, 4, 5}, {20, 5, 1});
  for (int64_t first = 0; first < 60; ++first) {
    for (int64_t count = 1; first + count <= 60; ++count) {
      std::vector<int> covered(static_cast<size_t>(count), 0);
      const std::vector<ViewBox> boxes = CutIntoBoxes(tensor, first, count);
      EXPECT_LE(boxes.size(), 7u);
      for (const ViewBox& box : boxes) {
        int64_t size = 1;
        for (const ViewBox::Axis& axis : box.axes) {
          size *= axis.size;
        }
        // The view is contiguous, so every box is one run.
        for (int64_t i = 0; i < size; ++i) {
          ++covered[static_cast<size_t>(box.out_offset + i)];
        }
        EXPECT_EQ(box.storage_offset, first + box.out_offset);
      }
      EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), count);
    }
  }
}

struct Cost {
  uint64_t num_reads;
  uint64_t num_bytes;
  uint64_t largest;
};

Cost CostOf(const std::string& storage, const TensorInfo& tensor) {
  MemoryFile file(storage);
  ExpectRange(file, storage, tensor, 0, tensor.shape.num_elements());
  return {file.num_reads, file.num_bytes_read, file.largest_read};
}

TEST(StridedRead, CostsOnePassOverTheStorage) {
  const int64_t n = 1600;
  const std::string storage = Payload(n * n * 4);  // 10 MB
  const Cost whole = CostOf(storage, View(DType::kF32, {n, n}, {n, 1}));
  EXPECT_EQ(whole.num_reads, 1u);
  const Cost transposed = CostOf(storage, View(DType::kF32, {n, n}, {1, n}));
  EXPECT_LE(transposed.num_bytes, storage.size());
  EXPECT_LE(transposed.num_reads, 12u);
  EXPECT_LE(transposed.largest, uint64_t{1} << 20);
  const Cost sliced =
      CostOf(storage, View(DType::kF32, {n / 2, n - 7}, {2 * n, 1}, 7));
  EXPECT_LE(sliced.num_bytes, storage.size());
  // A column is far from dense: only a part of the storage is read.
  const Cost column = CostOf(storage, View(DType::kF32, {n / 8}, {8 * n}, 3));
  EXPECT_LE(column.num_bytes, 4u * n / 8);
  const Cost expanded =
      CostOf(storage, View(DType::kF32, {1000, 1000}, {0, 0}));
  EXPECT_LE(expanded.num_reads, 1u);
}

TEST(StridedRead, LongRunsOfLargeStepsInsideTheWindow) {
  const std::string storage = Payload(6 << 20);
  // Steps of 1000 elements, so that one run spans several windows.
  CostOf(storage, View(DType::kF32, {1500}, {1000}));
  CostOf(storage, View(DType::kU8, {6, 1 << 20}, {1 << 20, 1}));
  CostOf(storage, View(DType::kF64, {3, 1000}, {1, 700}));
}

TEST(ReadElements, RangesOutsideAreRefused) {
  const auto file =
      OpenBytes(TorchZip(pickle::Whole(pickle::Tensor()), {pickle::Floats(6)}));
  const TensorInfo& tensor = file->root().AsTensor();
  std::vector<std::byte> out(8);
  const auto read = [&](int64_t first, size_t bytes) {
    file->ReadElements(tensor, first, std::span(out).first(bytes));
  };
  read(4, 8);
  read(6, 0);
  for (const auto& [first, bytes] : std::vector<std::pair<int64_t, size_t>>{
           {5, 8}, {-1, 4}, {7, 0}, {0, 3}, {INT64_MAX, 4}}) {
    EXPECT_ERROR(read(first, bytes), ErrorCode::kInvalidArgument,
                 "outside of the tensor");
  }
  TensorInfo stranger = tensor;
  stranger.storage = 1;
  EXPECT_ERROR(file->ReadElements(stranger, 0, out),
               ErrorCode::kInvalidArgument, "outside");
}

}  // namespace
}  // namespace muonstore::torchfile
