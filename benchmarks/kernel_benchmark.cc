// Times the kernels; benchmarks/newton_schulz.py and passes.py run it beside
// torch.
//
//   kernel_benchmark newton-schulz IN BATCH ROWS COLS FORM PRECISION THREADS
//                    REPEATS OUT
//     IN holds BATCH * ROWS * COLS floats; the result goes to OUT. FORM is
//     auto, standard or gram, PRECISION f32 or bf16. Prints the form that ran,
//     its floating-point operations, then the seconds of each repeat.
//   kernel_benchmark peak THREADS
//     Prints what products alone reach: the name, f32 and bf16 GFLOP/s.
//   kernel_benchmark passes ELEMENTS THREADS REPEATS
//     Prints each element-wise pass, its bytes an element, and the best
//     seconds.
//
// Seconds are those of a clock on the wall. With one thread and
// MUONSTORE_BENCHMARK_CLOCK=cpu they are the processor's: what to compare on a
// machine that others use.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "muonstore/newton_schulz.h"
#include "src/kernel/accumulate.h"
#include "src/kernel/adam.h"
#include "src/kernel/exact_sum.h"
#include "src/kernel/gemm.h"
#include "src/kernel/momentum.h"
#include "src/kernel/muon_update.h"

namespace muonstore {
namespace {

double Now() {
  const char* clock = std::getenv(  // NOLINT(concurrency-mt-unsafe)
      "MUONSTORE_BENCHMARK_CLOCK");
  const bool cpu = clock != nullptr && std::string(clock) == "cpu";
  timespec time = {};
  clock_gettime(cpu ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

double SecondsOf(const std::function<void()>& work) {
  const double start = Now();
  work();
  return Now() - start;
}

NewtonSchulzOptions OptionsFor(const std::string& form,
                               const std::string& precision) {
  NewtonSchulzOptions options;
  if (form != "auto") {
    options.form =
        form == "gram" ? NewtonSchulzForm::kGram : NewtonSchulzForm::kStandard;
  }
  if (precision == "bf16") {
    options.precision = NewtonSchulzPrecision::kBF16;
  }
  return options;
}

int RunNewtonSchulz(const std::vector<std::string>& args) {
  const int64_t batch = std::stoll(args.at(1));
  const int64_t rows = std::stoll(args.at(2));
  const int64_t cols = std::stoll(args.at(3));
  const int64_t size = rows * cols;
  std::vector<float> in(static_cast<size_t>(batch * size));
  std::vector<float> out(in.size());
  const auto num_bytes = static_cast<std::streamsize>(in.size() * 4);
  std::ifstream(args.at(0), std::ios::binary)
      .read(reinterpret_cast<char*>(in.data()), num_bytes);
  const NewtonSchulzOptions options = OptionsFor(args.at(4), args.at(5));
  ThreadPool pool(std::stoi(args.at(6)));
  Orthogonalizer orthogonalizer(options, pool);
  const OrthogonalizeJob job = {{in.data(), batch, rows, cols, size, cols},
                                {out.data(), batch, rows, cols, size, cols}};
  const bool gram = ChooseForm(options, rows, cols) == NewtonSchulzForm::kGram;
  std::printf(
      "%s\n%.0f\n", gram ? "gram" : "standard",
      static_cast<double>(batch) * OrthogonalizeFlops(options, rows, cols));
  for (int repeat = std::stoi(args.at(7)); repeat >= 0; --repeat) {
    std::printf("%.6f\n", SecondsOf([&] { orthogonalizer.Run({&job, 1}); }));
  }
  std::ofstream(args.at(8), std::ios::binary)
      .write(reinterpret_cast<const char*>(out.data()), num_bytes);
  return 0;
}

// The rate of products of operands that stay in a core's cache.
template <typename Multiply>
double PeakGflops(ThreadPool& pool, double flops, const Multiply& multiply) {
  constexpr int kRepeats = 40;
  constexpr int kProducts = 20;
  double best = 1e9;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    best = std::min(best, SecondsOf([&] {
                      pool.ParallelFor(pool.num_threads(), [&](int64_t) {
                        for (int i = 0; i < kProducts; ++i) multiply();
                      });
                    }));
  }
  return flops * kProducts * pool.num_threads() / best / 1e9;
}

int RunPeak(int num_threads) {
  constexpr int64_t kSide = 256;
  constexpr double kFlops = 2.0 * kSide * kSide * kSide;
  const auto gemm = MakeGemm();
  ThreadPool pool(num_threads);
  const std::vector<float> f32(kSide * kSide, 0.5F);
  const std::vector<BF16> bf16(kSide * kSide, BF16{0x3F00});
  const double f32_rate = PeakGflops(pool, kFlops, [&] {
    std::vector<float> c(kSide * kSide);
    gemm->Multiply(GemmCall{.m = kSide,
                            .n = kSide,
                            .k = kSide,
                            .a = f32.data(),
                            .lda = kSide,
                            .b = f32.data(),
                            .ldb = kSide,
                            .c = c.data(),
                            .ldc = kSide});
  });
  double bf16_rate = 0;
  if (gemm->bf16_rate() > 0) {
    bf16_rate = PeakGflops(pool, kFlops, [&] {
      std::vector<float> c(kSide * kSide);
      gemm->Multiply(PackedGemmCall{.m = kSide,
                                    .n = kSide,
                                    .k = kSide,
                                    .a = bf16.data(),
                                    .packed_b = bf16.data(),
                                    .c = c.data()});
    });
  }
  std::printf("%s\n%.0f\n%.0f\n", MatrixProductName().c_str(), f32_rate,
              bf16_rate);
  return 0;
}

// State of the size of a training run's, and every pass over ranges of it.
class Passes {
 public:
  Passes(size_t count, int num_threads, int num_repeats)
      : pool_(num_threads),
        num_repeats_(num_repeats),
        gradient_(count, 0.01F),
        master_(count, 1.0F),
        first_(count, 0.1F),
        second_(count, 0.2F),
        chunk_(count * 2),
        weights_(count * 2) {}

  void Run() {
    // What memory gives: one array is written that was not read, which costs a
    // read all the same.
    Time("triad", 16, [this](size_t begin, size_t count) {
      const float* a = first_.data() + begin;
      const float* b = second_.data() + begin;
      float* sum = master_.data() + begin;
      for (size_t i = 0; i < count; ++i) sum[i] = a[i] + 0.5F * b[i];
    });
    Time("accumulate bf16", 10, [this](size_t begin, size_t count) {
      AccumulateGradient(DType::kBF16,
                         std::span(chunk_).subspan(2 * begin, 2 * count),
                         AccumulateMode::kAdd, Part(gradient_, begin, count));
    });
    Time("exact sum", 4, [this](size_t begin, size_t count) {
      ExactSum().AddSquares(Part(gradient_, begin, count));
    });
    Time("momentum nesterov", 16, [this](size_t begin, size_t count) {
      UpdateMomentum({}, Part(gradient_, begin, count),
                     Part(first_, begin, count));
    });
    Time("muon update bf16", 14, [this](size_t begin, size_t count) {
      ApplyMuonUpdate({.lr = 1e-3, .weight_decay = 0.1},
                      Part(gradient_, begin, count),
                      Part(master_, begin, count), Weights(begin, count));
    });
    Time("adam", 28, [this](size_t begin, size_t count) {
      AdamStep({.lr = 1e-3, .weight_decay = 0.1}, Part(gradient_, begin, count),
               State(begin, count), {});
    });
    Time("adam bf16 weights", 30, [this](size_t begin, size_t count) {
      AdamStep({.lr = 1e-3, .weight_decay = 0.1}, Part(gradient_, begin, count),
               State(begin, count), Weights(begin, count));
    });
  }

 private:
  static std::span<float> Part(std::vector<float>& values, size_t begin,
                               size_t count) {
    return std::span(values).subspan(begin, count);
  }
  AdamState State(size_t begin, size_t count) {
    return {Part(master_, begin, count), Part(first_, begin, count),
            Part(second_, begin, count)};
  }
  ComputeWeights Weights(size_t begin, size_t count) {
    return {DType::kBF16, std::span(weights_).subspan(2 * begin, 2 * count)};
  }

  void Time(const char* name, int bytes_an_element,
            const std::function<void(size_t begin, size_t count)>& pass) {
    constexpr size_t kRange = size_t{1} << 16;
    const size_t size = master_.size();
    double best = 1e9;
    for (int repeat = 0; repeat <= num_repeats_; ++repeat) {
      best = std::min(best, SecondsOf([&] {
                        pool_.ParallelFor(
                            static_cast<int64_t>((size + kRange - 1) / kRange),
                            [&](int64_t item) {
                              const size_t begin =
                                  static_cast<size_t>(item) * kRange;
                              pass(begin, std::min(kRange, size - begin));
                            });
                      }));
    }
    std::printf("%s,%d,%.6f\n", name, bytes_an_element, best);
  }

  ThreadPool pool_;
  int num_repeats_;
  std::vector<float> gradient_;
  std::vector<float> master_;
  std::vector<float> first_;
  std::vector<float> second_;
  std::vector<std::byte> chunk_;
  std::vector<std::byte> weights_;
};

int Main(const std::vector<std::string>& args) {
  if (args.size() == 10 && args.front() == "newton-schulz") {
    return RunNewtonSchulz({args.begin() + 1, args.end()});
  }
  if (args.size() == 2 && args.front() == "peak") {
    return RunPeak(std::stoi(args[1]));
  }
  if (args.size() == 4 && args.front() == "passes") {
    Passes(std::stoull(args[1]), std::stoi(args[2]), std::stoi(args[3])).Run();
    return 0;
  }
  std::fprintf(stderr,
               "kernel_benchmark: see benchmarks/kernel_benchmark.cc\n");
  return 2;
}

}  // namespace
}  // namespace muonstore

int main(int argc, char** argv) {
  try {
    return muonstore::Main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_benchmark: %s\n", error.what());
    return 1;
  }
}
