#include "tests/executor/step_run.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace muonstore::testutil {
namespace {

std::vector<float> Floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

std::vector<ParameterSpec> ManyMatrices() {
  std::vector<ParameterSpec> model;
  for (int i = 0; i < 24; ++i) {
    model.push_back({.name = "w" + std::to_string(i),
                     .shape = Shape({8 + 4 * (i % 3), 12})});
  }
  return model;
}

StateBytes StepRun(const std::shared_ptr<Communicator>& communicator,
                   int32_t stage, ExecutorOptions options) {
  const auto store =
      MakeStepStore(communicator, {.stage = stage, .model = ManyMatrices()});
  options.groups = StepOptionsOf(*store).groups;
  OffloadExecutor executor(*store, std::move(options));
  for (uint64_t step = 1; step <= 3; ++step) {
    AccumulateAll(*store, executor, step);
    executor.Step();
  }
  executor.Close();
  StateBytes state = AllState(*store);
  store->Close();
  return state;
}

void ExpectNear(const StateBytes& found, const StateBytes& expected,
                double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [key, bytes] : expected) {
    if (key.ends_with("weight")) continue;
    const std::vector<float> a = Floats(found.at(key));
    const std::vector<float> b = Floats(bytes);
    ASSERT_EQ(a.size(), b.size());
    double distance = 0;
    double norm = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      distance += std::pow(double{a[i]} - double{b[i]}, 2);
      norm += std::pow(double{b[i]}, 2);
    }
    EXPECT_LE(std::sqrt(distance), tolerance * std::sqrt(norm)) << key;
  }
}

}  // namespace muonstore::testutil
