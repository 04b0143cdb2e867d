// Saves and resumes of a live store: see checkpoints.py.
//
//   checkpoint_benchmark save ROOT     fills a store, saves it as tag
//   "blocking" checkpoint_benchmark stall ROOT    steps with and without a save
//   under way checkpoint_benchmark load ROOT     resumes from the tag
//   "blocking"
//
// Forks its ranks; prints a line of JSON a rank.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/bench_model.h"
#include "muonstore/executor.h"
#include "muonstore/resume.h"
#include "muonstore/save.h"
#include "muonstore/store.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace muonstore {
namespace {

using Clock = std::chrono::steady_clock;

struct Flags {
  std::string root;
  int32_t ranks = 1;
  int32_t stage = 2;
  int threads = 2;
  int steps = 3;
  bench::ModelShape shape;
  std::string nvme_directory;
};

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Rank {
 public:
  Rank(const Flags& flags, int32_t rank, const std::string& rendezvous)
      : flags_(flags), model_(bench::MakeModel(flags.shape)) {
    ranks_ =
        flags.ranks > 1
            ? ConnectSharedMemory(
                  {.rank = rank, .size = flags.ranks, .rendezvous = rendezvous})
            : MakeSingleCommunicator();
    StoreOptions options{.communicator = ranks_};
    if (!flags.nvme_directory.empty()) {
      options.tiers.rest.tier =
          MakeNvmeTier({.directory = flags.nvme_directory});
    }
    store_ = std::make_unique<StateStore>(
        model_,
        Partitioning::Build(model_,
                            {.stage = flags.stage, .num_ranks = flags.ranks}),
        std::move(options));
  }

  nlohmann::json Save() {
    Fill();
    Saver saver(*store_, flags_.root);
    const SaveHandle save = saver.Save("blocking", {.overwrite = true});
    save.Wait();
    return {{"seconds", save.report().durable_s},
            {"bytes", save.report().total_bytes}};
  }

  // What the save costs beside the steps: the time in Save, and what the steps
  // until it is durable take longer than the same steps without it.
  nlohmann::json Stall() {
    Fill();
    OffloadExecutor executor(
        *store_, {.groups = bench::Groups(), .num_threads = flags_.threads});
    Saver saver(*store_, flags_.root);
    // The first save takes the memory that later ones use again.
    saver.Save("first", {.asynchronous = true, .overwrite = true}).Wait();
    std::vector<double> alone;
    for (int i = 0; i < flags_.steps + 1; ++i) {
      alone.push_back(StepSeconds(executor));
    }
    std::nth_element(alone.begin() + 1, alone.begin() + 1 + flags_.steps / 2,
                     alone.end());
    const double step_s = alone[static_cast<size_t>(1 + flags_.steps / 2)];
    const Clock::time_point start = Clock::now();
    const SaveHandle save =
        saver.Save("second", {.asynchronous = true, .overwrite = true});
    const double save_s = SecondsSince(start);
    double lost_s = 0;
    int num_steps = 0;
    for (; !AllDone(save); ++num_steps) {
      lost_s += StepSeconds(executor) - step_s;
    }
    save.Wait();
    return {{"save_s", save_s},
            {"lost_s", lost_s},
            {"stall_s", save_s + lost_s},
            {"steps_beside", num_steps},
            {"step_s", step_s},
            {"durable_s", save.report().durable_s},
            {"bytes", save.report().total_bytes},
            {"memcpy_s", MemcpySeconds(save.report().rank_bytes)}};
  }

  nlohmann::json Load() {
    ranks_->Barrier();
    const Clock::time_point start = Clock::now();
    Resume(*store_, flags_.root, {.tag = "blocking"});
    ranks_->Barrier();
    return {{"seconds", SecondsSince(start)}};
  }

 private:
  void Fill() {
    for (size_t i = 0; i < model_.size(); ++i) {
      for (const StateKind& kind : store_->kinds(static_cast<int32_t>(i))) {
        if (kind == kGradient) continue;
        std::vector<float> values = bench::RandomValues(
            model_[i], static_cast<uint32_t>(i * 7 + kind.size()));
        // Second moments are no squares of nothing.
        for (float& value : values) value = value * value + 1e-6F;
        store_->Set(model_[i].name, kind, values);
      }
    }
  }

  // Steps are collective: all ranks stop at the same one.
  bool AllDone(const SaveHandle& save) {
    std::array<int64_t, 1> done = {save.done() ? 1 : 0};
    ranks_->AllReduce(done, ReduceOp::kMin);
    return done[0] != 0;
  }

  double StepSeconds(OffloadExecutor& executor) {
    bench::AccumulateAll(model_, executor);
    const Clock::time_point start = Clock::now();
    executor.Step();
    return SecondsSince(start);
  }

  // From memory to memory that is there already.
  static double MemcpySeconds(uint64_t bytes) {
    std::vector<std::byte> from(bytes, std::byte{1});
    std::vector<std::byte> to(bytes, std::byte{2});
    const Clock::time_point start = Clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    return SecondsSince(start);
  }

  const Flags& flags_;
  std::vector<ParameterSpec> model_;
  std::shared_ptr<Communicator> ranks_;
  std::unique_ptr<StateStore> store_;
};

}  // namespace
}  // namespace muonstore

int main(int argc, char** argv) {
  muonstore::Flags flags;
  CLI::App app("Times saves and resumes of a live store; prints JSON.");
  app.require_subcommand(1);
  CLI::App* save = app.add_subcommand("save", "A save that is waited for");
  CLI::App* stall = app.add_subcommand("stall", "Steps beside a save");
  CLI::App* load = app.add_subcommand("load", "A resume");
  for (CLI::App* command : {save, stall, load}) {
    command->add_option("root", flags.root, "Folder of tags")->required();
    command->add_option("--ranks", flags.ranks, "Processes");
    command->add_option("--stage", flags.stage, "ZeRO stage");
    command->add_option("--threads", flags.threads, "Threads of each rank");
    command->add_option("--steps", flags.steps, "Steps to compare with");
    command->add_option("--layers", flags.shape.layers, "Layers");
    command->add_option("--width", flags.shape.width, "Width of a layer");
    command->add_option("--vocabulary", flags.shape.vocabulary,
                        "Rows of the embedding");
    command->add_option("--nvme-dir", flags.nvme_directory,
                        "State lies on NVMe here");
  }
  CLI11_PARSE(app, argc, argv);
  const std::string rendezvous = "checkpoint-" + std::to_string(::getpid());
  return muonstore::bench::ForkRanks(flags.ranks, [&](int32_t number) {
    muonstore::Rank rank(flags, number, rendezvous);
    const nlohmann::json line = save->parsed()    ? rank.Save()
                                : stall->parsed() ? rank.Stall()
                                                  : rank.Load();
    muonstore::bench::PrintLine(line.dump());
  });
}
