// Results of other implementations, within the tolerances that their own errors
// give: the attributes of each dataset.
#include <cmath>
#include <optional>

#include <gtest/gtest.h>

#include "tests/kernel/matrices.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/hdf5_file.h"

namespace muonstore {
namespace {

using testutil::Hdf5File;

// Floats in [-1, 1) from a counter.
std::vector<float> SplitMix(uint64_t seed, size_t count) {
  std::vector<float> values;
  for (size_t i = 1; i <= count; ++i) {
    uint64_t z = seed + i * 0x9E3779B97F4A7C15U;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    z = z ^ (z >> 31);
    values.push_back(
        static_cast<float>(static_cast<double>(z >> 40) * 0x1p-23 - 1.0));
  }
  return values;
}

// A stack of matrices as the file has it.
struct Input {
  int64_t batch = 1;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;
};

Input ReadInput(const Hdf5File& file, const std::string& name) {
  Input input;
  std::vector<int64_t> shape;
  if (file.Has(name + "/input")) {
    const testutil::Hdf5Tensor stored = file.Read(name + "/input");
    shape = stored.shape;
    input.values = stored.floats();
  } else {
    shape = file.Integers(name, "input_shape");
    const auto seed =
        static_cast<uint64_t>(file.Integers(name, "input_seed").front());
    input.values =
        SplitMix(seed, static_cast<size_t>(shape.front() * shape.back()));
  }
  input.batch = shape.size() == 3 ? shape.front() : 1;
  input.rows = shape[shape.size() - 2];
  input.cols = shape.back();
  return input;
}

std::vector<float> Run(const Input& input, const NewtonSchulzOptions& options) {
  ThreadPool pool(2);
  std::vector<float> out(input.values.size());
  const int64_t size = input.rows * input.cols;
  Orthogonalize(
      {input.values.data(), input.batch, input.rows, input.cols, size,
       input.cols},
      {out.data(), input.batch, input.rows, input.cols, size, input.cols},
      options, pool);
  return out;
}

// Which tolerance applies: absolute, and relative by Frobenius norm.
struct Tolerance {
  double absolute = 0;
  std::optional<double> frobenius;
};

std::optional<Tolerance> ToleranceFor(const Hdf5File& file,
                                      const std::string& dataset,
                                      const NewtonSchulzOptions& options) {
  if (options.precision == NewtonSchulzPrecision::kBF16) {
    const auto absolute = file.Number(dataset, "tol_bf16_abs");
    if (file.Number(dataset, "bf16_not_usable") || !absolute) {
      return std::nullopt;
    }
    return Tolerance{.absolute = *absolute};
  }
  const bool gram = options.form == NewtonSchulzForm::kGram;
  const std::string kind = gram ? "tol_f32_" : "tol_f32_strict_";
  auto absolute = file.Number(dataset, kind + "abs");
  if (!absolute) absolute = file.Number(dataset, "tol_f32_abs");
  if (!absolute) return std::nullopt;
  return Tolerance{.absolute = *absolute,
                   .frobenius = file.Number(dataset, kind + "fro")};
}

// Values of the result at the places that the dataset has.
std::vector<float> Select(const Hdf5File& file, const std::string& name,
                          const std::vector<float>& result) {
  if (!file.Has(name + "/sample_index")) return result;
  std::vector<float> selected;
  for (const double index : file.Read(name + "/sample_index").values) {
    selected.push_back(result[static_cast<size_t>(index)]);
  }
  return selected;
}

void ExpectWithin(const std::vector<float>& found,
                  const std::vector<double>& expected,
                  const Tolerance& tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  double worst = 0;
  double error_squares = 0;
  double squares = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = found[i] - expected[i];
    // Not std::max, which would lose a NaN.
    if (!(std::abs(error) <= worst)) worst = std::abs(error);
    error_squares += error * error;
    squares += expected[i] * expected[i];
  }
  EXPECT_LE(worst, tolerance.absolute);
  if (tolerance.frobenius) {
    EXPECT_LE(std::sqrt(error_squares),
              *tolerance.frobenius * std::sqrt(squares));
  }
}

struct Comparison {
  std::string dataset;
  NewtonSchulzNormalization normalization;
};

// What the file holds for a matrix and a set. Where it tells the normalizations
// apart, each has a dataset of its own.
std::vector<Comparison> Comparisons(const Hdf5File& file,
                                    const std::string& results) {
  const bool sampled = file.Has(results + "/sample");
  const std::string expected = results + (sampled ? "/sample" : "/expected");
  const std::string scale_free = results + "/expected_scalefree";
  return {{expected, NewtonSchulzNormalization::kCompat},
          {file.Has(scale_free) ? scale_free : expected,
           NewtonSchulzNormalization::kScaleFree}};
}

int CompareMatrix(const Hdf5File& file, const std::string& name) {
  int num_compared = 0;
  const Input input = ReadInput(file, name);
  for (NewtonSchulzOptions options : AllPaths()) {
    const bool jordan = options.coefficients.name == "jordan5";
    const std::string results = name + (jordan ? "/jordan5" : "/pe5");
    for (const Comparison& comparison : Comparisons(file, results)) {
      const auto tolerance = ToleranceFor(file, comparison.dataset, options);
      if (!tolerance) continue;
      options.normalization = comparison.normalization;
      SCOPED_TRACE(comparison.dataset + ": " + Describe(options));
      ExpectWithin(Select(file, name, Run(input, options)),
                   file.Read(comparison.dataset).values, *tolerance);
      ++num_compared;
    }
  }
  return num_compared;
}

class NewtonSchulzReplay
    : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(NewtonSchulzReplay, EveryMatrixIsWithinTolerance) {
  const Hdf5File file(GetParam());
  const std::vector<std::string> names = file.Members("/");
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    // Two sets, two f32 forms, two normalizations.
    EXPECT_GE(CompareMatrix(file, name), 8) << name;
  }
}

std::vector<std::filesystem::path> ReplayFiles() {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& root : testutil::FixtureRoots()) {
    const std::filesystem::path file = root / "replay/newton_schulz.h5";
    if (std::filesystem::exists(file)) files.push_back(file);
  }
  return files;
}

INSTANTIATE_TEST_SUITE_P(Files, NewtonSchulzReplay,
                         testing::ValuesIn(ReplayFiles()));

}  // namespace
}  // namespace muonstore
