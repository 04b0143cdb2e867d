#include "src/kernel/gemm.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "src/kernel/packing.h"
#include "src/tensor/float_bits.h"

extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int num_threads);
}

namespace muonstore {
namespace {

constexpr float kGemmGuard = 777.0F;

struct Sides {
  int64_t m;
  int64_t n;
  int64_t k;
};

// Operands with rows further apart than they are long.
struct Operands {
  std::vector<float> a;
  std::vector<float> b;
  std::vector<float> c;
  GemmCall call;
};

std::vector<float> Random(int64_t count, std::mt19937_64* rng) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(*rng);
  return values;
}

Operands MakeOperands(const Sides& sides, bool transposed, uint64_t seed) {
  std::mt19937_64 rng(seed);
  Operands made;
  GemmCall& call = made.call;
  call.m = sides.m;
  call.n = sides.n;
  call.k = sides.k;
  call.lda = sides.k + 3;
  call.ldb = (transposed ? sides.k : sides.n) + 5;
  call.ldc = sides.n + 2;
  call.b_transposed = transposed;
  made.a = Random(call.m * call.lda, &rng);
  made.b = Random((transposed ? call.n : call.k) * call.ldb, &rng);
  made.c.assign(static_cast<size_t>(call.m * call.ldc), kGemmGuard);
  call.a = made.a.data();
  call.b = made.b.data();
  call.c = made.c.data();
  return made;
}

struct Entry {
  double sum = 0;
  double magnitude = 0;  // The sum of the terms' magnitudes.

  void Add(double term) {
    sum += term;
    magnitude += std::abs(term);
  }
};

Entry ExactEntry(const GemmCall& call, int64_t i, int64_t j) {
  Entry entry;
  for (int64_t k = 0; k < call.k; ++k) {
    const float b =
        call.b[call.b_transposed ? j * call.ldb + k : k * call.ldb + j];
    entry.Add(static_cast<double>(call.a[i * call.lda + k]) * b);
  }
  return entry;
}

// Sums of k terms, each rounded to f32: 2 k eps times their magnitudes bounds
// the error of any order.
void ExpectEntry(float found, const Entry& exact, int64_t k) {
  const double relative = 2 * static_cast<double>(k) * 0x1p-24;
  ASSERT_NEAR(found, exact.sum, relative * exact.magnitude + 1e-30);
}

void ExpectProduct(const Operands& operands) {
  const GemmCall& call = operands.call;
  for (int64_t i = 0; i < call.m; ++i) {
    const float* row = call.c + i * call.ldc;
    for (int64_t j = 0; j < call.n; ++j) {
      SCOPED_TRACE(std::to_string(i) + ", " + std::to_string(j));
      ExpectEntry(row[j], ExactEntry(call, i, j), call.k);
    }
    EXPECT_EQ(std::count(row + call.n, row + call.ldc, kGemmGuard),
              call.ldc - call.n);
  }
}

// A product of bf16 operands, with guards behind the result.
struct PackedOperands {
  std::vector<BF16> a;
  std::vector<BF16> b;  // Row-major.
  std::vector<BF16> packed;
  std::vector<float> old;
  std::vector<float> c;
  PackedGemmCall call;
};

std::vector<BF16> Rounded(const std::vector<float>& values) {
  std::vector<BF16> rounded;
  for (const float value : values) rounded.push_back({BF16FromFloat(value)});
  return rounded;
}

PackedOperands MakePacked(const Sides& sides, bool accumulate, uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto [m, n, k] = sides;
  PackedOperands made;
  made.a = Rounded(Random(m * k, &rng));
  made.b = Rounded(Random(k * n, &rng));
  made.packed.resize(static_cast<size_t>(PackedSize(k, n)));
  PackRows({made.b.data(), n, k, n}, made.packed.data());
  made.old = accumulate ? Random(m * n, &rng)
                        : std::vector<float>(static_cast<size_t>(m * n),
                                             std::nanf(""));
  made.c = made.old;
  made.c.resize(made.c.size() + 64, kGemmGuard);
  made.call = {.m = m,
               .n = n,
               .k = k,
               .a = made.a.data(),
               .packed_b = made.packed.data(),
               .c = made.c.data(),
               .accumulate = accumulate};
  return made;
}

void ExpectProduct(const PackedOperands& operands) {
  const PackedGemmCall& call = operands.call;
  const auto at = [](const std::vector<BF16>& values, int64_t index) {
    return FloatFromBF16(values[static_cast<size_t>(index)].bits);
  };
  for (int64_t i = 0; i < call.m; ++i) {
    for (int64_t j = 0; j < call.n; ++j) {
      Entry exact;
      if (call.accumulate) {
        exact.Add(operands.old[static_cast<size_t>(i * call.n + j)]);
      }
      for (int64_t k = 0; k < call.k; ++k) {
        exact.Add(static_cast<double>(at(operands.a, i * call.k + k)) *
                  at(operands.b, k * call.n + j));
      }
      SCOPED_TRACE(std::to_string(i) + ", " + std::to_string(j));
      ExpectEntry(call.c[i * call.n + j], exact, call.k + 1);
    }
  }
  EXPECT_EQ(std::count(operands.c.end() - 64, operands.c.end(), kGemmGuard),
            64);
}

std::vector<Sides> ManySides() {
  return {{1, 1, 1},    {1, 7, 3},     {5, 1, 9},    {16, 16, 16},
          {17, 33, 65}, {128, 40, 70}, {3, 200, 64}, {64, 3, 257}};
}

// NewtonSchulzOn.* in CMakeLists.txt asks for each set in turn.
TEST(Gemm, RunsOnTheInstructionSetThatIsAskedFor) {
  const char* asked = std::getenv("ONEDNN_MAX_CPU_ISA");
  std::string name = asked == nullptr ? "" : asked;
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  const std::string found = MakeGemm()->name();
  if (!found.ends_with(name)) {
    GTEST_SKIP() << "this processor has no " << asked << " but " << found;
  }
  EXPECT_EQ(found.find("oneDNN "), 0U);
}

TEST(Gemm, F32AgreesWithThreeNestedLoops) {
  const auto gemm = MakeGemm();
  for (const Sides& sides : ManySides()) {
    for (const bool transposed : {false, true}) {
      const Operands operands = MakeOperands(sides, transposed, 3);
      gemm->Multiply(operands.call);
      ExpectProduct(operands);
    }
  }
}

// Skips by name where the processor, or ONEDNN_MAX_CPU_ISA, has no bf16.
class PackedGemm : public testing::Test {
 protected:
  void SetUp() override {
    if (gemm_->bf16_rate() == 0) {
      GTEST_SKIP() << gemm_->name() << " does not multiply bf16";
    }
  }

  std::unique_ptr<Gemm> gemm_ = MakeGemm();
};

TEST_F(PackedGemm, AgreesWithThreeNestedLoops) {
  for (const Sides& sides : std::vector<Sides>{{32, 32, 32},
                                               {32, 64, 96},
                                               {96, 32, 64},
                                               {64, 160, 32},
                                               {128, 96, 512},
                                               {160, 224, 288}}) {
    for (const bool accumulate : {false, true}) {
      const PackedOperands operands = MakePacked(sides, accumulate, 4);
      gemm_->Multiply(operands.call);
      ExpectProduct(operands);
    }
  }
}

// More shapes than are kept, so that early ones are made again.
TEST_F(PackedGemm, ManyShapesKeepWorking) {
  for (int64_t i = 1; i < 300; ++i) {
    const PackedOperands operands =
        MakePacked({32 * (1 + i % 3), 32 * (1 + i / 3), 32}, false, 4);
    gemm_->Multiply(operands.call);
    if (i % 50 == 1) ExpectProduct(operands);
  }
}

TEST(Gemm, OldContentOfTheResultIsNotRead) {
  Operands operands = MakeOperands({20, 30, 40}, false, 5);
  std::fill(operands.c.begin(), operands.c.end(), std::nanf(""));
  const auto gemm = MakeGemm();
  gemm->Multiply(operands.call);
  EXPECT_TRUE(std::isfinite(operands.c[0]));
  EXPECT_TRUE(std::isfinite(operands.c[19 * 32 + 29]));
}

// The caller's OpenMP settings neither matter nor change.
TEST(Gemm, RunsOnTheCallingThreadWhateverOpenMPSays) {
  const auto gemm = MakeGemm();
  const int before = omp_get_max_threads();
  std::vector<std::vector<float>> results;
  for (const int num_threads : {1, 2, 7}) {
    omp_set_num_threads(num_threads);
    const Operands f32 = MakeOperands({200, 200, 200}, true, 6);
    const PackedOperands bf16 = MakePacked({192, 192, 192}, true, 6);
    gemm->Multiply(f32.call);
    if (gemm->bf16_rate() > 0) gemm->Multiply(bf16.call);
    EXPECT_EQ(omp_get_max_threads(), num_threads);
    results.push_back(f32.c);
    results.push_back(bf16.c);
  }
  omp_set_num_threads(before);
  for (size_t i = 2; i < results.size(); ++i) {
    EXPECT_EQ(results[i], results[i % 2]);
  }
}

TEST_F(PackedGemm, ManyThreadsMayShareOne) {
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int64_t n = 1; n < 20; ++n) {
        const PackedOperands operands = MakePacked({32 * n, 64, 32}, true, 8);
        gemm_->Multiply(operands.call);
        results[t] = operands.c;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& result : results) {
    EXPECT_EQ(result, results[0]);
  }
}

}  // namespace
}  // namespace muonstore
