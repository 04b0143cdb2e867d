// One rank group of the step benchmark: see step.py.
//
// Forks its ranks, steps a store with the shapes of four layers of a small GPT
// and prints, as JSON, what each rank's steps took.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "muonstore/executor.h"
#include "muonstore/store.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace muonstore {
namespace {

struct Flags {
  int32_t ranks = 1;
  int32_t stage = 2;
  int threads = 2;
  int steps = 5;
  int64_t layers = 4;
  int64_t width = 768;
  int64_t vocabulary = 8192;
  bool bf16 = false;
  bool pin = true;
  bool overlap = true;
};

std::vector<ParameterSpec> Model(const Flags& flags) {
  std::vector<ParameterSpec> model = {
      {.name = "embed.weight",
       .shape = Shape({flags.vocabulary, flags.width}),
       .group = 1,
       .optimizer = Optimizer::kAdam}};
  const int64_t width = flags.width;
  for (int64_t layer = 0; layer < flags.layers; ++layer) {
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

// Cheap, finite, of full rank.
std::vector<float> Gradient(const ParameterSpec& parameter, uint32_t seed) {
  std::vector<float> values(
      static_cast<size_t>(parameter.shape.num_elements()));
  uint32_t state = seed * 2654435761U + 1;
  for (float& value : values) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) / 16777216.0F - 0.5F;
  }
  return values;
}

nlohmann::json ReportOf(const StepReport& report) {
  return {{"total_s", report.total_s},
          {"prepare_s", report.prepare_s},
          {"update_s", report.update_s},
          {"exchange_s", report.exchange_s},
          {"orthogonalize_s", report.orthogonalize_s},
          {"received_bytes", report.received_bytes},
          {"peak_gather_bytes", report.peak_gather_bytes},
          {"orthogonalized_here", report.num_orthogonalized_here}};
}

void RunRank(const Flags& flags, int32_t rank, const std::string& rendezvous) {
  std::shared_ptr<Communicator> communicator;
  if (flags.ranks > 1) {
    communicator = ConnectSharedMemory(
        {.rank = rank, .size = flags.ranks, .rendezvous = rendezvous});
  }
  const auto model = Model(flags);
  StateStore store(model,
                   Partitioning::Build(
                       model, {.stage = flags.stage, .num_ranks = flags.ranks}),
                   {.communicator = communicator,
                    .tiers = {.rest = {.pinning = flags.pin ? Pinning::kTry
                                                            : Pinning::kOff}}});
  ExecutorOptions options{.groups = {{}, {.lr = 0.003}},
                          .num_threads = flags.threads,
                          .overlap = flags.overlap};
  if (flags.bf16) {
    options.newton_schulz.precision = NewtonSchulzPrecision::kBF16;
  }
  OffloadExecutor executor(store, options);
  std::vector<std::vector<float>> gradients;
  for (size_t i = 0; i < model.size(); ++i) {
    gradients.push_back(Gradient(model[i], static_cast<uint32_t>(i)));
  }
  nlohmann::json steps = nlohmann::json::array();
  for (int step = 0; step < flags.steps; ++step) {
    for (size_t i = 0; i < model.size(); ++i) {
      executor.Accumulate(model[i].name,
                          {.data = std::as_bytes(std::span(gradients[i]))});
    }
    steps.push_back(ReportOf(executor.Step()));
  }
  uint64_t pinned = 0;
  for (const PinReport& report : store.pin_reports()) {
    pinned += report.pinned_bytes;
  }
  const std::string line =
      nlohmann::json{{"rank", rank}, {"pinned_bytes", pinned}, {"steps", steps}}
          .dump() +
      "\n";
  // One write, so that the lines of ranks do not mix.
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::abort();
  executor.Close();
  store.Close();
}

int RunRanks(const Flags& flags) {
  const std::string rendezvous = "step-" + std::to_string(::getpid());
  std::vector<pid_t> children;
  for (int32_t rank = 0; rank < flags.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        RunRank(flags, rank, rendezvous);
        ::_exit(0);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "step_benchmark: %s\n", error.what());
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

}  // namespace
}  // namespace muonstore

int main(int argc, char** argv) {
  muonstore::Flags flags;
  CLI::App app("Times Muon + Adam steps of an offloaded store; prints JSON.");
  app.add_option("--ranks", flags.ranks, "Processes")->check(CLI::Range(1, 64));
  app.add_option("--stage", flags.stage, "ZeRO stage")->check(CLI::Range(1, 3));
  app.add_option("--threads", flags.threads, "Threads of each rank");
  app.add_option("--steps", flags.steps, "Steps");
  app.add_option("--layers", flags.layers, "Layers");
  app.add_option("--width", flags.width, "Width of a layer");
  app.add_option("--vocabulary", flags.vocabulary, "Rows of the embedding");
  app.add_flag("--bf16", flags.bf16, "bf16 operands in Newton-Schulz");
  app.add_flag("!--no-pin", flags.pin, "Memory that is not page-locked");
  app.add_flag("!--no-overlap", flags.overlap, "Exchange, then compute");
  CLI11_PARSE(app, argc, argv);
  return muonstore::RunRanks(flags);
}
