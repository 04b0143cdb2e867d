#include "src/inspect/npy.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

class NpyTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) / "npy_test" / info->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path() const { return (folder_ / "out.npy").string(); }

  std::string Content() const {
    std::ifstream in(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  // Writes `rows` of the first tensor.
  NpyResult Write(const Checkpoint& checkpoint, RowRange rows) {
    return WriteNpy(PosixFileSystem(), checkpoint,
                    {.path = path(), .tensor = 0, .rows = rows});
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  fs::path folder_;
};

// The data behind the header, as numbers.
template <typename T>
std::vector<T> Data(const std::string& file) {
  const size_t header = 10 + static_cast<unsigned char>(file[8]) +
                        256 * static_cast<unsigned char>(file[9]);
  std::vector<T> out((file.size() - header) / sizeof(T));
  if (!out.empty()) {
    std::memcpy(out.data(), file.data() + header, out.size() * sizeof(T));
  }
  return out;
}

TEST(NpyHeader, AsNumpyWritesIt) {
  const std::vector<int64_t> shape = {3, 4};
  std::string expected("\x93NUMPY\x01\0\x76\0", 10);
  expected += "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }";
  expected.resize(127, ' ');
  expected += '\n';
  EXPECT_EQ(NpyHeader("<f4", shape), expected);
}

TEST(NpyHeader, ShapesAsPythonTuples) {
  EXPECT_THAT(NpyHeader("|b1", {}), HasSubstr("'shape': (), }"));
  const std::vector<int64_t> one = {7};
  EXPECT_THAT(NpyHeader("<f8", one), HasSubstr("'shape': (7,), }"));
  const std::vector<int64_t> three = {0, 1, 2};
  EXPECT_THAT(NpyHeader("<f8", three), HasSubstr("'shape': (0, 1, 2), }"));
}

TEST(NpyHeader, IsAMultipleOf64AtAnyLength) {
  for (int64_t dims = 0; dims < 60; ++dims) {
    const std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
    const std::string header = NpyHeader("<f4", shape);
    EXPECT_EQ(header.size() % 64, 0U);
    EXPECT_EQ(header.back(), '\n');
  }
  const std::vector<int64_t> endless(40000, 1);
  EXPECT_THROW(NpyHeader("<f4", endless), Error);
}

TEST_F(NpyTest, WholeTensorInElementOrder) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {5, 3}, .num_pieces = 4},
                 UniqueValues(15));
  const NpyResult result = Write(checkpoint, {0, 5});
  const std::string file = Content();
  EXPECT_EQ(file.substr(0, 128), NpyHeader("<f4", std::vector<int64_t>{5, 3}));
  EXPECT_EQ(Data<float>(file), UniqueValues(15));
  EXPECT_FALSE(result.widened);
  EXPECT_EQ(result.size_bytes, file.size());
  EXPECT_THAT(Files(), ElementsAre("out.npy"));
}

TEST_F(NpyTest, SomeRowsReplaceAnExistingFile) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {5, 2, 2}, .num_pieces = 3},
                 UniqueValues(20, 1));
  std::ofstream(path()) << "old";
  Write(checkpoint, {1, 3});
  EXPECT_THAT(Content(), HasSubstr("(2, 2, 2)"));
  EXPECT_THAT(Data<float>(Content()), ElementsAre(5, 6, 7, 8, 9, 10, 11, 12));
}

TEST_F(NpyTest, NoRowsAndNoDimensions) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "s", .shape = {}}, std::vector<float>{7});
  Write(checkpoint, {0, 1});
  EXPECT_THAT(Content(), HasSubstr("'shape': (), "));
  EXPECT_THAT(Data<float>(Content()), ElementsAre(7));
  EXPECT_THROW(Write(checkpoint, {0, 0}), Error);
  MemoryCheckpoint matrix;
  matrix.Add({.parameter = "w", .shape = {5, 3}}, UniqueValues(15));
  Write(matrix, {2, 2});
  EXPECT_THAT(Content(), HasSubstr("(0, 3)"));
  EXPECT_TRUE(Data<float>(Content()).empty());
}

TEST_F(NpyTest, RowsOutsideAreRefused) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {5, 3}}, UniqueValues(15));
  for (const RowRange rows : {RowRange{-1, 2}, {3, 2}, {0, 6}}) {
    EXPECT_THROW(Write(checkpoint, rows), Error);
  }
  EXPECT_TRUE(Files().empty());
}

TEST_F(NpyTest, SmallFloatsAreWidened) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add(
      {.parameter = "w", .shape = {3}, .dtype = DType::kBF16, .num_pieces = 2},
      std::vector<float>{1.5F, -2, 0x1p-130F});
  const NpyResult result = Write(checkpoint, {0, 3});
  EXPECT_TRUE(result.widened);
  EXPECT_EQ(result.descr, "<f4");
  EXPECT_THAT(Data<float>(Content()), ElementsAre(1.5F, -2, 0x1p-130F));
}

TEST_F(NpyTest, ComplexHalfBecomesComplex64) {
  MemoryCheckpoint checkpoint;
  std::vector<std::byte> bytes(8);
  ConvertFromF32(std::vector<float>{1, -2, 0.5, 4}, DType::kF16, bytes);
  checkpoint.Add({.parameter = "z", .shape = {2}, .dtype = DType::kC32}, bytes);
  EXPECT_EQ(Write(checkpoint, {0, 2}).descr, "<c8");
  EXPECT_THAT(Data<float>(Content()), ElementsAre(1, -2, 0.5, 4));
}

TEST_F(NpyTest, EveryTypeThatNumpyHasIsBytesForBytes) {
  const std::vector<std::pair<DType, std::string>> types = {
      {DType::kF64, "<f8"}, {DType::kF32, "<f4"},  {DType::kF16, "<f2"},
      {DType::kI64, "<i8"}, {DType::kI32, "<i4"},  {DType::kI16, "<i2"},
      {DType::kI8, "|i1"},  {DType::kU64, "<u8"},  {DType::kU32, "<u4"},
      {DType::kU16, "<u2"}, {DType::kU8, "|u1"},   {DType::kBool, "|b1"},
      {DType::kC64, "<c8"}, {DType::kC128, "<c16"}};
  for (const auto& [dtype, descr] : types) {
    std::vector<std::byte> bytes(3 * static_cast<size_t>(SizeBytes(dtype)));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(i + 1);
    MemoryCheckpoint checkpoint;
    checkpoint.Add({.parameter = "w", .shape = {3}, .dtype = dtype}, bytes);
    EXPECT_EQ(Write(checkpoint, {0, 3}).descr, descr);
    EXPECT_EQ(Data<std::byte>(Content()), bytes);
  }
}

TEST_F(NpyTest, PairsOfFourBitsAreUnsupported) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {3}, .dtype = DType::kF4E2M1FNx2},
                 std::vector<std::byte>(3));
  try {
    Write(checkpoint, {0, 3});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
  EXPECT_TRUE(Files().empty());
}

TEST_F(NpyTest, AFailureLeavesTheOldFileAndNothingElse) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {5, 3}}, UniqueValues(15));
  checkpoint.Poison(0);
  std::ofstream(path()) << "old";
  EXPECT_THROW(Write(checkpoint, {0, 5}), Error);
  EXPECT_EQ(Content(), "old");
  EXPECT_THAT(Files(), ElementsAre("out.npy"));
}

TEST_F(NpyTest, AnInterruptionLeavesTheOldFileAndNothingElse) {
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {5, 3}}, UniqueValues(15));
  std::ofstream(path()) << "old";
  EXPECT_THROW(WriteNpy(PosixFileSystem(), checkpoint,
                        {.path = path(),
                         .tensor = 0,
                         .rows = {0, 5},
                         .progress = [](uint64_t, uint64_t) { throw 7; }}),
               int);
  EXPECT_EQ(Content(), "old");
  EXPECT_THAT(Files(), ElementsAre("out.npy"));
}

TEST_F(NpyTest, TensorsLargerThanABlock) {
  // 4 MiB blocks hold 2^20 floats.
  const int64_t rows = (int64_t{1} << 20) / 100 + 20;
  MemoryCheckpoint checkpoint;
  checkpoint.Add({.parameter = "w", .shape = {rows, 100}, .num_pieces = 3},
                 UniqueValues(rows * 100, 1));
  Write(checkpoint, {3, rows});
  const std::vector<float> expected = UniqueValues(rows * 100, 1);
  EXPECT_EQ(Data<float>(Content()),
            std::vector<float>(expected.begin() + 300, expected.end()));
}

}  // namespace
}  // namespace muonstore
