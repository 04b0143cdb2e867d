#include "tests/testutil/golden.h"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>

namespace muonstore::testutil {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::filesystem::path TestFile(const std::string& name) {
  return std::filesystem::path(::testing::TempDir()) / name;
}

struct NewDataset {
  const char* group;
  const char* name;
  hid_t file_type;
  hid_t memory_type;
  std::vector<hsize_t> dims;
};

// Writes one dataset in a group of its own, with the C API.
void WriteDataset(hid_t file, const NewDataset& spec, const void* values) {
  const hid_t group =
      H5Gcreate2(file, spec.group, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(spec.dims.size()),
                                       spec.dims.data(), nullptr);
  const hid_t dataset = H5Dcreate2(group, spec.name, spec.file_type, space,
                                   H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(H5Dwrite(dataset, spec.memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                     values),
            0);
  H5Dclose(dataset);
  H5Sclose(space);
  H5Gclose(group);
}

TEST(Golden, ReadsFloatMatricesAndDoubleScalarsByPath) {
  const std::filesystem::path path = TestFile("golden_test_read.h5");
  const hid_t file =
      H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const std::vector<float> matrix = {1, 2, 3, 4, 5, 6};
  WriteDataset(file,
               {"fp32", "blocks.0.w", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, {2, 3}},
               matrix.data());
  const double step = 5;
  WriteDataset(file,
               {"step", "blocks.0.b", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {}},
               &step);
  H5Fclose(file);

  const Golden golden = ReadGolden(path);
  ASSERT_EQ(golden.size(), 2U);
  const GoldenTensor& weight = golden.at("fp32/blocks.0.w");
  EXPECT_THAT(weight.shape, ElementsAre(2, 3));
  EXPECT_THAT(weight.floats, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(weight.doubles, IsEmpty());
  const GoldenTensor& scalar = golden.at("step/blocks.0.b");
  EXPECT_THAT(scalar.shape, IsEmpty());
  EXPECT_THAT(scalar.floats, IsEmpty());
  EXPECT_THAT(scalar.doubles, ElementsAre(5));
  std::filesystem::remove(path);
}

TEST(Golden, RefusesOtherTypesByName) {
  const std::filesystem::path path = TestFile("golden_test_type.h5");
  const hid_t file =
      H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const int value = 7;
  WriteDataset(file, {"step", "w", H5T_STD_I32LE, H5T_NATIVE_INT, {}}, &value);
  H5Fclose(file);
  try {
    ReadGolden(path);
    FAIL() << "took an integer for a golden value";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("step/w"));
  }
  std::filesystem::remove(path);
}

TEST(Golden, ADamagedFileIsAnError) {
  const std::filesystem::path path = TestFile("golden_test_damaged.h5");
  std::ofstream(path) << "not HDF5";
  EXPECT_THROW(ReadGolden(path), std::runtime_error);
  std::filesystem::remove(path);
}

DeepSpeedTag TwoTags(const std::string& tag) {
  const DeepSpeedCase one = FindDeepSpeedCase("s2-ws2-bf16-none-twotags");
  return {one.name, one.folder, "ckpt", tag};
}

TEST(Golden, EachTagOfACaseHasItsOwnValues) {
  const Golden early = ReadGolden(TwoTags("step5"));
  const Golden late = ReadGolden(TwoTags("step8"));
  EXPECT_THAT(early.at("step/norm_f.bias").doubles, ElementsAre(5));
  EXPECT_THAT(late.at("step/norm_f.bias").doubles, ElementsAre(8));
  const GoldenTensor& momentum = early.at("momentum_buffer/odd.weight");
  EXPECT_THAT(momentum.shape, ElementsAre(7, 13));
  EXPECT_EQ(momentum.floats.size(), 91U);
  EXPECT_NE(momentum.floats, late.at("momentum_buffer/odd.weight").floats);
  EXPECT_EQ(early.size(), late.size());
}

}  // namespace
}  // namespace muonstore::testutil
