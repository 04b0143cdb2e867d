// Random models: the executor against the oracle, and the same bits however a
// run is cut.

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/executor/random_run.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testutil::OracleResult;
using testutil::RandomRun;
using testutil::RunCut;
using testutil::RunResult;

constexpr double kUlp = 0x1p-24;

double MaxOf(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values)
    largest = std::max(largest, std::abs(value));
  return largest;
}

// What f32 arithmetic may change, from the formulas:
// * Newton-Schulz multiplies an error in small singular values by the product
//   of its linear coefficients (485, or 990 of Polar Express); what comes in
//   and each product add a few ulp of a matrix of norm 1.
// * Momentum and moments: a few roundings a step, relative to the gradients of
//   which they are sums (they may cancel).
// * An update adds its own error and one rounding of the weight a step. With
//   DeepSpeed's clipping the factor carries the error of the updates.
class Tolerance {
 public:
  // Gradients are below 4 before they are summed.
  explicit Tolerance(const RandomRun& run)
      : steps_(static_cast<double>(run.num_steps)),
        gradient_(4 * static_cast<double>(run.micro_batches)) {
    double slope = 1;
    for (const auto& step : run.options.newton_schulz.coefficients.steps) {
      slope *= step.a;
    }
    orthogonal_ = 16 * slope * kUlp;
    if (run.clipping == ClippingMode::kDeepSpeed) factor_ = orthogonal_;
  }

  double OfMomentum(const std::vector<double>& values) const {
    return 4 * steps_ * kUlp * (gradient_ + MaxOf(values));
  }
  double OfExpAvg(const std::vector<double>& values) const {
    return (4 * steps_ * kUlp + factor_) * (gradient_ + MaxOf(values));
  }
  double OfExpAvgSq(const std::vector<double>& values) const {
    return (16 * steps_ * kUlp + 2 * factor_) *
           (gradient_ * gradient_ + MaxOf(values));
  }
  double OfMuonMaster(const oracle::StepParameter& p,
                      const GroupHyperParameters& group) const {
    // The scale of no matrix exceeds that of a column or row of all elements.
    const double scale =
        std::sqrt(static_cast<double>(std::max<size_t>(p.master.size(), 1)));
    return steps_ *
           (2 * group.lr * scale * orthogonal_ + 4 * kUlp * MaxOf(p.master));
  }
  double OfAdamMaster(const oracle::StepParameter& p,
                      const GroupHyperParameters& group) const {
    return steps_ *
           (group.lr * (2e-5 + 8 * factor_) + 4 * kUlp * MaxOf(p.master));
  }

 private:
  double steps_;
  double gradient_;
  double orthogonal_ = 0;
  double factor_ = 0;
};

std::vector<float> FloatsOf(const RunResult& result, const std::string& key) {
  const std::vector<std::byte>& bytes = result.state.at(key);
  std::vector<float> values(bytes.size() / sizeof(float));
  ConvertToF32(DType::kF32, bytes, values);
  return values;
}

void ExpectNear(const RunResult& result, const std::string& key,
                const std::vector<double>& expected, double tolerance) {
  const std::vector<float> values = FloatsOf(result, key);
  ASSERT_EQ(values.size(), expected.size()) << key;
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(values[i]), expected[i], tolerance)
        << key << " element " << i;
  }
}

// The compute weight is the master, rounded.
void ExpectRoundedWeight(const RunResult& result, const ParameterSpec& spec) {
  const std::vector<float> master = FloatsOf(result, spec.name + "/master");
  std::vector<std::byte> rounded(
      master.size() * static_cast<size_t>(SizeBytes(spec.weight_dtype)));
  ConvertFromF32(master, spec.weight_dtype, rounded);
  EXPECT_TRUE(rounded == result.state.at(spec.name + "/weight")) << spec.name;
}

void ExpectAsOracle(const RandomRun& run, const RunResult& result) {
  const OracleResult oracle = testutil::ExecuteOracle(run);
  const Tolerance tolerance(run);
  int64_t changed = 0;
  for (size_t i = 0; i < oracle.steps.size(); ++i) {
    EXPECT_EQ(result.overflows[i], oracle.steps[i].skipped) << "step " << i;
    changed += oracle.steps[i].skipped ? 0 : 1;
    if (oracle.steps[i].skipped || run.clipping == ClippingMode::kOff) continue;
    EXPECT_NEAR(result.norms[i] / oracle.steps[i].norm, 1, 1e-4);
    EXPECT_NEAR(result.clip_factors[i] / oracle.steps[i].clip_factor, 1, 1e-4);
  }
  EXPECT_EQ(result.num_orthogonalized, changed * testutil::NumMatrices(run));
  for (size_t i = 0; i < run.model.size(); ++i) {
    const ParameterSpec& spec = run.model[i];
    const oracle::StepParameter& p = oracle.parameters[i];
    if (!p.is_trained) continue;
    const auto& group = run.options.groups[static_cast<size_t>(spec.group)];
    if (p.is_muon) {
      ExpectNear(result, spec.name + "/momentum", p.momentum,
                 tolerance.OfMomentum(p.momentum));
      ExpectNear(result, spec.name + "/master", p.master,
                 tolerance.OfMuonMaster(p, group));
    } else {
      ExpectNear(result, spec.name + "/exp_avg", p.exp_avg,
                 tolerance.OfExpAvg(p.exp_avg));
      ExpectNear(result, spec.name + "/exp_avg_sq", p.exp_avg_sq,
                 tolerance.OfExpAvgSq(p.exp_avg_sq));
      ExpectNear(result, spec.name + "/master", p.master,
                 tolerance.OfAdamMaster(p, group));
    }
    if (changed > 0) ExpectRoundedWeight(result, spec);
  }
}

class RandomRuns : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomRuns, AgreeWithTheOracle) {
  const RandomRun run = testutil::MakeRandomRun(GetParam());
  ExpectAsOracle(
      run, testutil::Execute(run, {.stage = 1}, MakeSingleCommunicator()));
}

struct RankedCut {
  int32_t num_ranks = 1;
  RunCut cut;
};

// Every stage with every number of ranks; all else varies along.
std::vector<RankedCut> Cuts(const std::string& nvme_directory = {}) {
  std::vector<RankedCut> cuts;
  for (int32_t stage = 1; stage <= 3; ++stage) {
    for (int32_t num_ranks = 1; num_ranks <= 4; ++num_ranks) {
      const int32_t turn = stage * 4 + num_ranks;
      cuts.push_back({num_ranks,
                      {.stage = stage,
                       .num_threads = turn % 3 + 1,
                       .overlap = turn % 2 == 0,
                       .pinned_tier = turn % 5 == 0,
                       .in_chunks = turn % 4 != 0,
                       .tight_gathers = turn % 3 == 1,
                       .sub_group_size = turn % 2 == 0 ? 300 : 1'000'000'000,
                       .nvme_directory = nvme_directory,
                       // Some models have segments on both sides of it.
                       .resident_below_bytes = turn % 3 == 0 ? 4000U : 0U,
                       .swap_mode = turn % 4 < 2 ? SwapMode::kPipelined
                                                 : SwapMode::kPartitioned}});
    }
  }
  return cuts;
}

void ExpectTheSameBits(uint64_t seed, const std::vector<RankedCut>& cuts) {
  RandomRun run = testutil::MakeRandomRun(seed);
  // As a user has it: the form is chosen by shape.
  run.options.newton_schulz.form = NewtonSchulzForm::kAuto;
  const RunResult expected = testutil::Execute(
      run, {.stage = 1, .overlap = false}, MakeSingleCommunicator());
  for (const RankedCut& one : cuts) {
    testutil::RunConnectedRanks(
        one.num_ranks, [&](const std::shared_ptr<Communicator>& ranks) {
          const RunResult result = testutil::Execute(run, one.cut, ranks);
          EXPECT_EQ(result.norms, expected.norms);
          EXPECT_EQ(result.clip_factors, expected.clip_factors);
          EXPECT_EQ(result.overflows, expected.overflows);
          for (const auto& [key, bytes] : expected.state) {
            EXPECT_TRUE(result.state.at(key) == bytes)
                << key << " at " << one.cut.ToString() << ", " << one.num_ranks
                << " ranks";
          }
        });
    if (testing::Test::HasFailure()) return;
  }
}

TEST_P(RandomRuns, GiveTheSameBitsHoweverTheyAreCut) {
  ExpectTheSameBits(GetParam(), Cuts());
}

TEST_P(RandomRuns, GiveTheSameBitsOnNvme) {
  const testutil::Scratch scratch;
  ExpectTheSameBits(GetParam(), Cuts(scratch.path().string()));
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRuns, testing::Range<uint64_t>(0, 24));

}  // namespace
}  // namespace muonstore
