#include "examples/train_gpt/flags.h"

#include <map>

#include <CLI/CLI.hpp>

namespace train_gpt {
namespace {

void AddModel(CLI::App& app, ModelFlags& model) {
  app.add_option("--layers", model.num_layers, "transformer blocks")
      ->check(CLI::Range(1, 64));
  app.add_option("--dim", model.dim, "width")->check(CLI::Range(8, 4096));
  app.add_option("--heads", model.num_heads, "attention heads")
      ->check(CLI::Range(1, 64));
  app.add_option("--context", model.context, "bytes of text a sample")
      ->check(CLI::Range(2, 4096));
  static const std::map<std::string, bool> kDTypes = {{"f32", false},
                                                      {"bf16", true}};
  app.add_option("--grad-dtype", model.bf16,
                 "compute weights and gradients: f32 (default) or bf16")
      ->transform(CLI::CheckedTransformer(kDTypes));
}

void AddOptimizer(CLI::App& app, OptimizerFlags& optimizer) {
  app.add_option("--lr", optimizer.muon_lr, "learning rate of Muon");
  app.add_option("--adam-lr", optimizer.adam_lr, "learning rate of Adam");
  app.add_option("--momentum", optimizer.momentum, "of Muon");
  app.add_option("--weight-decay", optimizer.weight_decay, "of both");
  app.add_option("--max-norm", optimizer.max_norm,
                 "clip gradients to this global norm; 0: do not");
  app.add_flag("!--no-nesterov", optimizer.nesterov, "plain momentum");
  static const std::map<std::string, bool> kConventions = {
      {"lerp", false}, {"accumulate", true}};
  app.add_option("--momentum-convention", optimizer.accumulate,
                 "lerp: M = mu M + (1 - mu) G (default); "
                 "accumulate: M = mu M + G")
      ->transform(CLI::CheckedTransformer(kConventions));
  static const std::map<std::string, bool> kScales = {{"spectral", false},
                                                      {"match_rms", true}};
  app.add_option("--scale", optimizer.match_rms,
                 "of Muon's update: spectral (default) or match_rms")
      ->transform(CLI::CheckedTransformer(kScales));
  static const std::map<std::string, QkvLayout> kLayouts = {
      {"whole", QkvLayout::kWhole},
      {"packed", QkvLayout::kPacked},
      {"heads", QkvLayout::kHeads}};
  app.add_option("--qkv", optimizer.qkv,
                 "the fused weight of attention as matrices: whole, packed "
                 "(q, k, v; default) or heads")
      ->transform(CLI::CheckedTransformer(kLayouts));
  static const std::map<std::string, NewtonSchulz> kForms = {
      {"auto", NewtonSchulz::kAuto},
      {"standard", NewtonSchulz::kStandard},
      {"gram", NewtonSchulz::kGram}};
  app.add_option("--newton-schulz", optimizer.newton_schulz,
                 "form in the store's executor: auto (default), standard or "
                 "gram; the baseline's is standard")
      ->transform(CLI::CheckedTransformer(kForms));
}

void AddRun(CLI::App& app, Flags& flags) {
  app.add_option("--steps", flags.num_steps)->check(CLI::Range(1, 1'000'000));
  app.add_option("--batch", flags.batch, "samples a step, over all ranks")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", flags.seed, "of the weights and the data");
  app.add_option("--text", flags.text, "file to learn")
      ->check(CLI::ExistingFile);
  app.add_option("--csv", flags.csv, "file for the loss of each step");
  app.add_option("--threads", flags.num_threads, "of each rank")
      ->check(CLI::Range(1, 1024));
  app.add_flag("--baseline", flags.baseline,
               "one process, whole tensors, no store");
  app.add_option("--baseline-split", flags.baseline_split,
                 "gradients in pieces, as so many ranks make them")
      ->check(CLI::Range(1, 1024));
  app.add_option("--ranks", flags.num_ranks, "processes")
      ->check(CLI::Range(1, 1024));
  app.add_option("--stage", flags.stage, "of ZeRO")->check(CLI::Range(1, 3));
  app.add_option("--rank", flags.rank)->group("");  // The launcher's.
  app.add_option("--rendezvous", flags.rendezvous)->group("");
}

std::string Contradiction(const Flags& flags) {
  const int64_t pieces = flags.baseline ? flags.baseline_split
                                        : static_cast<int64_t>(flags.num_ranks);
  if (flags.batch % pieces != 0) {
    return "--batch " + std::to_string(flags.batch) +
           " cannot be shared equally by " + std::to_string(pieces);
  }
  if (flags.model.dim % flags.model.num_heads != 0) {
    return "--dim must be a multiple of --heads";
  }
  if (flags.baseline && flags.num_ranks > 1) {
    return "--baseline is one process: use --baseline-split, not --ranks";
  }
  return "";
}

}  // namespace

std::optional<Flags> ParseFlags(int argc, char** argv, int& exit_code) {
  Flags flags;
  CLI::App app{
      "Trains a small GPT on bytes of text with Muon and Adam, whose state "
      "muonstore holds under ZeRO."};
  AddModel(app, flags.model);
  AddOptimizer(app, flags.optimizer);
  AddRun(app, flags);
  try {
    app.parse(argc, argv);
    const std::string contradiction = Contradiction(flags);
    if (!contradiction.empty()) throw CLI::ValidationError(contradiction);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  return flags;
}

}  // namespace train_gpt
