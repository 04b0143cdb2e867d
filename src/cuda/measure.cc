#include "src/cuda/measure.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "muonstore/tier.h"

namespace muonstore::cuda {
namespace {

constexpr int64_t kLargestSide = 1024;
constexpr int64_t kSmallestSide = 32;
// The first run pays for what the others find ready.
constexpr int kNumRuns = 3;

int64_t SideFor(const CudaDevice& gpu) {
  const uint64_t limit = gpu.max_memory_bytes();
  int64_t side = kLargestSide;
  const auto fits = [&] {
    const auto matrix_bytes =
        static_cast<uint64_t>(side * side) * sizeof(float);
    return limit == 0 || matrix_bytes + gpu.WorkspaceBytes(side, side) <= limit;
  };
  while (side > kSmallestSide && !fits()) side /= 2;
  return side;
}

double BestTime(const std::function<void()>& run) {
  double best = 0;
  for (int i = 0; i < kNumRuns; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    const std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    best = i == 0 ? time.count() : std::min(best, time.count());
  }
  return best;
}

// No structure that a product could gain by.
void Fill(std::span<float> values) {
  uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
}

}  // namespace

CudaCosts MeasureCosts(CudaDevice& gpu, const CudaOptions& options) {
  CudaCosts costs{.side = SideFor(gpu)};
  const int64_t side = costs.side;
  const auto count = static_cast<size_t>(side * side);
  const auto tier = MakePinnedHostTier();
  const auto arena = tier->CreateArena(
      {.name = "measurement", .block_bytes = {2 * count * sizeof(float)}});
  const auto registered = gpu.RegisterMemory(arena->all_memory());
  const std::span<float> all(
      reinterpret_cast<float*>(arena->memory(0, 0).data()), 2 * count);
  const std::span<float> in = all.first(count);
  const std::span<float> out = all.last(count);
  Fill(in);
  const auto buffer = gpu.Allocate(count * sizeof(float));
  costs.stream_s = BestTime([&] {
    const PendingPtr up = gpu.CopyIn(*buffer, std::as_bytes(in));
    const PendingPtr work =
        gpu.Orthogonalize(*buffer, {.batch = 1, .rows = side, .cols = side});
    gpu.CopyOut(std::as_writable_bytes(out), *buffer)->Wait();
    work->Wait();
    up->Wait();
  });
  ThreadPool threads(options.num_threads);
  Orthogonalizer orthogonalizer(options.newton_schulz, threads);
  const OrthogonalizeJob job = {
      .in = {in.data(), 1, side, side, side * side, side},
      .out = {out.data(), 1, side, side, side * side, side}};
  costs.host_s = BestTime([&] { orthogonalizer.Run({&job, 1}); });
  return costs;
}

}  // namespace muonstore::cuda
