// Times the kernels; benchmarks/kernels.py runs it beside torch.
//
//   kernel_benchmark newton-schulz IN BATCH ROWS COLS FORM PRECISION THREADS
//                    REPEATS OUT
//     IN holds BATCH * ROWS * COLS floats; the result goes to OUT. FORM is
//     auto, standard or gram, PRECISION f32 or bf16. Prints the form that ran,
//     then the seconds of each repeat.
//   kernel_benchmark passes ELEMENTS THREADS REPEATS
//     Prints each element-wise pass, its bytes an element, and the best
//     seconds.
#include <algorithm>
#include <chrono>
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
#include "src/kernel/momentum.h"
#include "src/kernel/muon_update.h"

namespace muonstore {
namespace {

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
      .count();
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
  std::printf("%s\n", gram ? "gram" : "standard");
  for (int repeat = std::stoi(args.at(7)); repeat >= 0; --repeat) {
    std::printf("%.6f\n", SecondsOf([&] { orthogonalizer.Run({&job, 1}); }));
  }
  std::ofstream(args.at(8), std::ios::binary)
      .write(reinterpret_cast<const char*>(out.data()), num_bytes);
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
  if (args.size() == 4 && args.front() == "passes") {
    Passes(std::stoull(args[1]), std::stoi(args[2]), std::stoi(args[3])).Run();
    return 0;
  }
  std::fprintf(stderr, "kernel_benchmark: see benchmarks/kernel_benchmark.cc\n");
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
