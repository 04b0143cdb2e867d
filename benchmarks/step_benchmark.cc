// One rank group of the step benchmark: see step.py and checkpoints.py.
//
// Forks its ranks, steps a store with the shapes of a few layers of a small GPT
// and prints, as JSON, what each rank's steps took. With --cuda each rank has a
// GPU: see gpu.
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/bench_model.h"
#include "muonstore/cuda.h"
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
  bench::ModelShape shape;
  bool bf16 = false;
  bool pin = true;
  bool overlap = true;
  std::string nvme_directory;
  int32_t queue_depth = NvmeOptions().queue_depth;
  bool pipelined = true;
  bool resident_gradients = false;
  std::string cuda;  // Mode; empty: no GPU.
  CudaLibraries libraries;
  uint64_t max_device_bytes = 0;
};

const std::map<std::string, CudaMode> kCudaModes = {
    {"stream", CudaMode::kStream},
    {"host", CudaMode::kHost},
    {"automatic", CudaMode::kAutomatic}};

nlohmann::json ReportOf(const StepReport& report) {
  return {{"total_s", report.total_s},
          {"prepare_s", report.prepare_s},
          {"update_s", report.update_s},
          {"exchange_s", report.exchange_s},
          {"swap_s", report.swap_s},
          {"orthogonalize_s", report.orthogonalize_s},
          {"received_bytes", report.received_bytes},
          {"swap_read_bytes", report.swap_read_bytes},
          {"swap_written_bytes", report.swap_written_bytes},
          {"peak_swap_bytes", report.peak_swap_bytes},
          {"peak_gather_bytes", report.peak_gather_bytes},
          {"device_in_bytes", report.device_in_bytes},
          {"device_out_bytes", report.device_out_bytes},
          {"peak_device_bytes", report.peak_device_bytes},
          {"orthogonalized_here", report.num_orthogonalized_here}};
}

TierPolicy TiersOf(const Flags& flags) {
  TierPolicy tiers{
      .rest = {.pinning = flags.pin ? Pinning::kTry : Pinning::kOff}};
  if (flags.nvme_directory.empty()) return tiers;
  // What the model computes with stays in memory.
  tiers.kinds[StateKind(kWeight)] = tiers.rest;
  if (flags.resident_gradients) {
    tiers.kinds[StateKind(kGradient)] = tiers.rest;
  }
  tiers.rest.tier = MakeNvmeTier(
      {.directory = flags.nvme_directory, .queue_depth = flags.queue_depth});
  return tiers;
}

// Ranks of a node share its GPUs in turn.
std::shared_ptr<CudaDevice> DeviceOf(
    const Flags& flags, const NewtonSchulzOptions& newton_schulz,
    const std::shared_ptr<Communicator>& communicator) {
  CudaOptions options{.mode = kCudaModes.at(flags.cuda),
                      .newton_schulz = newton_schulz,
                      .max_device_bytes = flags.max_device_bytes,
                      .num_threads = flags.threads,
                      .communicator = communicator,
                      .libraries = flags.libraries};
  const int32_t num_devices = ProbeCuda(options).num_devices;
  if (communicator != nullptr && num_devices > 0) {
    options.device = communicator->rank() % num_devices;
  }
  return MakeCudaDevice(options);
}

void RunRank(const Flags& flags, int32_t rank, const std::string& rendezvous) {
  std::shared_ptr<Communicator> communicator;
  if (flags.ranks > 1) {
    communicator = ConnectSharedMemory(
        {.rank = rank, .size = flags.ranks, .rendezvous = rendezvous});
  }
  NewtonSchulzOptions newton_schulz;
  if (flags.bf16) newton_schulz.precision = NewtonSchulzPrecision::kBF16;
  // Before the store, whose memory CUDA then page-locks.
  std::shared_ptr<CudaDevice> device;
  nlohmann::json device_bytes;
  if (!flags.cuda.empty()) {
    device = DeviceOf(flags, newton_schulz, communicator);
    device_bytes["device made"] = device->usage().peak_bytes;
  }
  const auto model = bench::MakeModel(flags.shape);
  StateStore store(model,
                   Partitioning::Build(
                       model, {.stage = flags.stage, .num_ranks = flags.ranks}),
                   {.communicator = communicator, .tiers = TiersOf(flags)});
  ExecutorOptions options{
      .groups = bench::Groups(),
      .newton_schulz = newton_schulz,
      .num_threads = flags.threads,
      .overlap = flags.overlap,
      .buffer_pinning = flags.pin ? Pinning::kTry : Pinning::kOff,
      .device = device};
  if (!flags.pipelined) options.swap_mode = SwapMode::kPartitioned;
  OffloadExecutor executor(store, options);
  if (device != nullptr) {
    device_bytes["executor made"] = device->usage().peak_bytes;
  }
  nlohmann::json steps = nlohmann::json::array();
  for (int step = 0; step < flags.steps; ++step) {
    bench::AccumulateAll(model, executor);
    steps.push_back(ReportOf(executor.Step()));
  }
  uint64_t pinned = 0;
  for (const PinReport& report : store.pin_reports()) {
    pinned += report.pinned_bytes;
  }
  bench::PrintLine(nlohmann::json{
      {"rank", rank},
      {"pinned_bytes", pinned},
      {"peak_device_bytes", device_bytes},
      {"device", device == nullptr ? "" : std::string(device->name())},
      {"steps", steps}}.dump());
  executor.Close();
  store.Close();
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
  app.add_option("--layers", flags.shape.layers, "Layers");
  app.add_option("--width", flags.shape.width, "Width of a layer");
  app.add_option("--vocabulary", flags.shape.vocabulary,
                 "Rows of the embedding");
  app.add_flag("--bf16", flags.bf16, "bf16 operands in Newton-Schulz");
  app.add_flag("!--no-pin", flags.pin, "Memory that is not page-locked");
  app.add_flag("!--no-overlap", flags.overlap, "Exchange, then compute");
  app.add_option("--nvme-dir", flags.nvme_directory,
                 "Masters, momenta, moments and gradients lie on NVMe here");
  app.add_option("--queue-depth", flags.queue_depth,
                 "With --nvme-dir: requests that the disk gets at once")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--resident-gradients", flags.resident_gradients,
               "With --nvme-dir: gradients stay in memory");
  app.add_flag("!--partitioned", flags.pipelined,
               "With --nvme-dir: read, compute and write in turn");
  std::vector<std::string> modes;
  for (const auto& [name, mode] : muonstore::kCudaModes) modes.push_back(name);
  app.add_option("--cuda", flags.cuda, "Orthogonalize with a GPU, by this mode")
      ->check(CLI::IsMember(modes));
  app.add_option("--cuda-plugin", flags.libraries.plugin,
                 "libmuonstore_cuda.so");
  std::string all_of_cuda;
  app.add_option("--cuda-library", all_of_cuda,
                 "One library in place of the driver, the runtime, cuBLAS and "
                 "NVRTC: the tests' fake");
  app.add_option("--max-device-bytes", flags.max_device_bytes,
                 "CudaOptions::max_device_bytes");
  CLI11_PARSE(app, argc, argv);
  flags.libraries.driver = flags.libraries.runtime = flags.libraries.blas =
      flags.libraries.nvrtc = all_of_cuda;
  const std::string rendezvous = "step-" + std::to_string(::getpid());
  return muonstore::bench::ForkRanks(flags.ranks, [&](int32_t rank) {
    muonstore::RunRank(flags, rank, rendezvous);
  });
}
