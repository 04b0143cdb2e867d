#include "benchmarks/bench_model.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

namespace muonstore::bench {

std::vector<ParameterSpec> MakeModel(const ModelShape& shape) {
  std::vector<ParameterSpec> model = {
      {.name = "embed.weight",
       .shape = Shape({shape.vocabulary, shape.width}),
       .group = 1,
       .optimizer = Optimizer::kAdam}};
  const int64_t width = shape.width;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "layers." + std::to_string(layer);
    const auto add = [&](const char* name, int64_t rows, int64_t cols) {
      model.push_back({.name = prefix + name, .shape = Shape({rows, cols})});
    };
    add(".qkv.weight", 3 * width, width);
    add(".proj.weight", width, width);
    add(".up.weight", 4 * width, width);
    add(".down.weight", width, 4 * width);
  }
  return model;
}

std::vector<float> RandomValues(const ParameterSpec& parameter, uint32_t seed) {
  std::vector<float> values(
      static_cast<size_t>(parameter.shape.num_elements()));
  uint32_t state = seed * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
  return values;
}

void AccumulateAll(const std::vector<ParameterSpec>& model,
                   OffloadExecutor& executor) {
  for (size_t i = 0; i < model.size(); ++i) {
    const std::vector<float> gradient =
        RandomValues(model[i], static_cast<uint32_t>(i));
    executor.Accumulate(model[i].name,
                        {.data = std::as_bytes(std::span(gradient))});
  }
}

std::vector<GroupHyperParameters> Groups() { return {{}, {.lr = 0.003}}; }

int ForkRanks(int32_t num_ranks, const std::function<void(int32_t)>& run) {
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        run(rank);
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        ::_exit(1);
      }
    }
    children.push_back(child);
  }
  int failed = 0;
  for (const pid_t child : children) {
    int status = 0;
    failed |= ::waitpid(child, &status, 0) != child || status != 0 ? 1 : 0;
  }
  return failed;
}

void PrintLine(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
}

}  // namespace muonstore::bench
