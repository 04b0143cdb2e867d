#include "tests/native/compare.h"

#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

namespace muonstore::native {
namespace {

std::map<TensorKey, size_t> ByKey(const Checkpoint& checkpoint) {
  std::map<TensorKey, size_t> keys;
  for (size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    EXPECT_TRUE(keys.emplace(checkpoint.tensors()[i].key, i).second);
  }
  return keys;
}

std::vector<std::byte> Bytes(const Checkpoint& checkpoint, size_t tensor,
                             ElementRange range) {
  const CheckpointTensor& info = checkpoint.tensors()[tensor];
  std::vector<std::byte> bytes(
      static_cast<size_t>(range.size() * SizeBytes(info.dtype)));
  ReadTensor(checkpoint, tensor, range, bytes);
  return bytes;
}

// Ranges of the tensor that are not missing.
std::vector<ElementRange> Present(const CheckpointTensor& tensor) {
  std::vector<ElementRange> ranges;
  int64_t begin = 0;
  for (const ElementRange& missing : tensor.missing) {
    ranges.push_back({begin, missing.begin});
    begin = missing.end;
  }
  ranges.push_back({begin, tensor.shape.num_elements()});
  return ranges;
}

void ExpectSameTensor(const Checkpoint& expected, size_t i,
                      const Checkpoint& actual, size_t j) {
  const CheckpointTensor& a = expected.tensors()[i];
  const CheckpointTensor& b = actual.tensors()[j];
  SCOPED_TRACE(a.key.ToString());
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(a.group, b.group);
  EXPECT_EQ(a.optimizer, b.optimizer);
  EXPECT_EQ(a.derived, b.derived);
  ASSERT_EQ(a.missing, b.missing);
  for (const ElementRange& range : Present(a)) {
    EXPECT_EQ(Bytes(expected, i, range), Bytes(actual, j, range));
  }
}

// As ==, but a NaN equals a NaN, and int 1 is not float 1.
bool Same(const Scalar& a, const Scalar& b) {
  const auto* x = std::get_if<double>(&a);
  const auto* y = std::get_if<double>(&b);
  if (x != nullptr && y != nullptr && std::isnan(*x)) {
    return std::isnan(*y);
  }
  return a == b;
}

void ExpectSameMap(const ScalarMap& expected, const ScalarMap& actual) {
  ASSERT_EQ(expected.size(), actual.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].first, actual[i].first);
    EXPECT_TRUE(Same(expected[i].second, actual[i].second))
        << expected[i].first << ": " << ScalarToString(expected[i].second)
        << " against " << ScalarToString(actual[i].second);
  }
}

}  // namespace

void ExpectSameTensors(const Checkpoint& expected, const Checkpoint& actual) {
  const auto a = ByKey(expected);
  const auto b = ByKey(actual);
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [key, i] : a) {
    const auto it = b.find(key);
    ASSERT_NE(it, b.end()) << key.ToString();
    ExpectSameTensor(expected, i, actual, it->second);
  }
}

void ExpectSameRun(const CheckpointInfo& expected,
                   const CheckpointInfo& actual) {
  EXPECT_EQ(expected.step, actual.step);
  ExpectSameMap(expected.counters, actual.counters);
  EXPECT_EQ(expected.module_order, actual.module_order);
  EXPECT_EQ(expected.aliases, actual.aliases);
  EXPECT_EQ(expected.frozen, actual.frozen);
  ASSERT_EQ(expected.groups.size(), actual.groups.size());
  for (size_t i = 0; i < expected.groups.size(); ++i) {
    const ParamGroup& a = expected.groups[i];
    const ParamGroup& b = actual.groups[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.optimizer, b.optimizer);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.num_parameters, b.num_parameters);
    EXPECT_EQ(a.num_elements, b.num_elements);
    ExpectSameMap(a.hyper_parameters, b.hyper_parameters);
  }
  ASSERT_EQ(expected.momentum.has_value(), actual.momentum.has_value());
  if (expected.momentum) {
    EXPECT_EQ(expected.momentum->convention, actual.momentum->convention);
    EXPECT_EQ(expected.momentum->unit, actual.momentum->unit);
    EXPECT_EQ(expected.momentum->unit_scale, actual.momentum->unit_scale);
    EXPECT_EQ(expected.momentum->scale_in_file, actual.momentum->scale_in_file);
  }
  ASSERT_EQ(expected.carried.size(), actual.carried.size());
  for (size_t i = 0; i < expected.carried.size(); ++i) {
    EXPECT_EQ(expected.carried[i].path, actual.carried[i].path);
    EXPECT_EQ(expected.carried[i].summary, actual.carried[i].summary);
  }
}

}  // namespace muonstore::native
