#include "src/kernel/gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/tensor/float_bits.h"

extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int num_threads);
}

namespace muonstore {
namespace {

constexpr float kGuard = 777.0F;

struct Sides {
  int64_t m;
  int64_t n;
  int64_t k;
};

float ToFloat(float value) { return value; }
float ToFloat(BF16 value) { return FloatFromBF16(value.bits); }
void Set(float value, float* out) { *out = value; }
void Set(float value, BF16* out) { out->bits = BF16FromFloat(value); }

// Operands with rows further apart than they are long.
template <typename T>
struct Operands {
  std::vector<T> a;
  std::vector<T> b;
  std::vector<float> c;
  GemmCall<T> call;
};

template <typename T>
Operands<T> MakeOperands(const Sides& sides, bool transposed, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<float> normal;
  Operands<T> made;
  GemmCall<T>& call = made.call;
  call.m = sides.m;
  call.n = sides.n;
  call.k = sides.k;
  call.lda = sides.k + 3;
  call.ldb = (transposed ? sides.k : sides.n) + 5;
  call.ldc = sides.n + 2;
  call.b_transposed = transposed;
  made.a.resize(static_cast<size_t>(call.m * call.lda));
  made.b.resize(static_cast<size_t>((transposed ? call.n : call.k) * call.ldb));
  made.c.assign(static_cast<size_t>(call.m * call.ldc), kGuard);
  for (T& value : made.a) Set(normal(rng), &value);
  for (T& value : made.b) Set(normal(rng), &value);
  call.a = made.a.data();
  call.b = made.b.data();
  call.c = made.c.data();
  return made;
}

struct Entry {
  double sum;
  double magnitude;  // The sum of the products' magnitudes.
};

template <typename T>
Entry ExactEntry(const GemmCall<T>& call, int64_t i, int64_t j) {
  Entry entry = {0, 0};
  for (int64_t k = 0; k < call.k; ++k) {
    const T b = call.b[call.b_transposed ? j * call.ldb + k : k * call.ldb + j];
    const double product =
        static_cast<double>(ToFloat(call.a[i * call.lda + k])) * ToFloat(b);
    entry.sum += product;
    entry.magnitude += std::abs(product);
  }
  return entry;
}

// Sums of k products, each rounded to f32: 2 k eps |a| |b| bounds the error of
// any order.
template <typename T>
void ExpectProduct(const Operands<T>& operands) {
  const GemmCall<T>& call = operands.call;
  const double relative = 2 * static_cast<double>(call.k) * 0x1p-24;
  for (int64_t i = 0; i < call.m; ++i) {
    const float* row = call.c + i * call.ldc;
    for (int64_t j = 0; j < call.n; ++j) {
      const Entry exact = ExactEntry(call, i, j);
      ASSERT_NEAR(row[j], exact.sum, relative * exact.magnitude + 1e-30)
          << i << ", " << j << " of " << call.m << " x " << call.n;
    }
    EXPECT_EQ(std::count(row + call.n, row + call.ldc, kGuard),
              call.ldc - call.n);
  }
}

std::vector<Sides> ManySides() {
  return {{1, 1, 1},    {1, 7, 3},     {5, 1, 9},    {16, 16, 16},
          {17, 33, 65}, {128, 40, 70}, {3, 200, 64}, {64, 3, 257}};
}

template <typename T>
void TestGemm(const Gemm& gemm) {
  for (const Sides& sides : ManySides()) {
    for (const bool transposed : {false, true}) {
      const Operands<T> operands = MakeOperands<T>(sides, transposed, 3);
      gemm.Multiply(operands.call);
      ExpectProduct(operands);
    }
  }
}

TEST(Gemm, F32AgreesWithThreeNestedLoops) { TestGemm<float>(*MakeGemm()); }

TEST(Gemm, BF16AgreesWithThreeNestedLoops) { TestGemm<BF16>(*MakeGemm()); }

TEST(Gemm, WideningGemmAgreesWithThreeNestedLoops) {
  const auto gemm = MakeWideningGemm(MakeGemm());
  TestGemm<float>(*gemm);
  TestGemm<BF16>(*gemm);
  EXPECT_THAT(gemm->name(), testing::HasSubstr("widened"));
}

// More shapes than are kept, so that early ones are made again.
TEST(Gemm, ManyShapesKeepWorking) {
  const auto gemm = MakeGemm();
  for (int64_t n = 1; n < 300; ++n) {
    const Operands<BF16> operands = MakeOperands<BF16>({2, n, 8}, false, 4);
    gemm->Multiply(operands.call);
    ExpectProduct(operands);
  }
}

TEST(Gemm, OldContentOfTheResultIsNotRead) {
  Operands<float> operands = MakeOperands<float>({20, 30, 40}, false, 5);
  std::fill(operands.c.begin(), operands.c.end(), std::nanf(""));
  const auto gemm = MakeGemm();
  gemm->Multiply(operands.call);
  EXPECT_TRUE(std::isfinite(operands.c[0]));
  EXPECT_TRUE(std::isfinite(operands.c[19 * 32 + 29]));
}

// The caller's OpenMP settings neither matter nor change.
TEST(Gemm, RunsOnTheCallingThreadWhateverOpenMPSays) {
  const Sides sides = {200, 200, 200};
  const auto gemm = MakeGemm();
  const int before = omp_get_max_threads();
  std::vector<std::vector<float>> results;
  for (const int num_threads : {1, 2, 7}) {
    omp_set_num_threads(num_threads);
    const Operands<float> f32 = MakeOperands<float>(sides, true, 6);
    const Operands<BF16> bf16 = MakeOperands<BF16>(sides, false, 6);
    gemm->Multiply(f32.call);
    gemm->Multiply(bf16.call);
    EXPECT_EQ(omp_get_max_threads(), num_threads);
    results.push_back(f32.c);
    results.push_back(bf16.c);
  }
  omp_set_num_threads(before);
  for (size_t i = 2; i < results.size(); ++i) {
    EXPECT_EQ(results[i], results[i % 2]);
  }
}

TEST(Gemm, ManyThreadsMayShareOne) {
  const auto gemm = MakeGemm();
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int64_t n = 1; n < 40; ++n) {
        const Operands<BF16> operands =
            MakeOperands<BF16>({n, 17, 33}, true, 8);
        gemm->Multiply(operands.call);
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
