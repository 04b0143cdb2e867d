#include "examples/train_gpt/flags.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace train_gpt {
namespace {

// One of a few words. The help shows words, not the numbers behind them.
template <typename T>
void AddChoice(CLI::App& app, const std::string& name, T& value,
               const std::vector<std::pair<std::string, T>>& words,
               const std::string& help) {
  std::string all;
  std::string chosen;
  for (const auto& [word, meaning] : words) {
    all += (all.empty() ? "" : "|") + word;
    if (meaning == value) chosen = word;
  }
  app.add_option_function<std::string>(
         name,
         [&value, words, name, all](const std::string& given) {
           for (const auto& [word, meaning] : words) {
             if (word == given) {
               value = meaning;
               return;
             }
           }
           throw CLI::ValidationError(name, "takes " + all);
         },
         help)
      ->type_name(all)
      ->default_str(chosen);
}

// CLI::Range takes "nan" for a number within.
CLI::Validator Finite(const std::string& what,
                      const std::function<bool(double)>& holds) {
  return {[what, holds](std::string& text) {
            char* end = nullptr;
            const double value = std::strtod(text.c_str(), &end);
            const bool is_number = end != text.c_str() && *end == '\0';
            return is_number && std::isfinite(value) && holds(value)
                       ? std::string()
                       : "takes " + what + ", not " + text;
          },
          ""};
}

CLI::Validator FromZero() {
  return Finite("a number of 0 or more", [](double x) { return x >= 0; });
}

// CLI11 reads "-1" as the largest unsigned number.
CLI::Validator Unsigned() {
  return {[](std::string& text) {
            return text.find('-') != std::string::npos
                       ? "takes no negative number: " + text
                       : std::string();
          },
          ""};
}

void AddModel(CLI::App& app, ModelFlags& model) {
  app.add_option("--layers", model.num_layers, "transformer blocks")
      ->check(CLI::Range(1, 64));
  app.add_option("--dim", model.dim, "width")->check(CLI::Range(8, 4096));
  app.add_option("--heads", model.num_heads, "attention heads")
      ->check(CLI::Range(1, 64));
  app.add_option("--context", model.context, "bytes of text a sample")
      ->check(CLI::Range(2, 4096));
  AddChoice<bool>(app, "--grad-dtype", model.bf16,
                  {{"f32", false}, {"bf16", true}},
                  "compute weights and gradients");
}

void AddRates(CLI::App& app, OptimizerFlags& optimizer) {
  app.add_option("--lr", optimizer.muon_lr, "learning rate of Muon")
      ->check(FromZero());
  app.add_option("--adam-lr", optimizer.adam_lr, "learning rate of Adam")
      ->check(FromZero());
  app.add_option("--momentum", optimizer.momentum, "of Muon")
      ->check(Finite("a number from 0 to below 1",
                     [](double x) { return x >= 0 && x < 1; }));
  app.add_option("--weight-decay", optimizer.weight_decay, "of both")
      ->check(FromZero());
  app.add_option("--max-norm", optimizer.max_norm,
                 "clip gradients to this global norm; 0: do not")
      ->check(FromZero());
}

void AddForms(CLI::App& app, OptimizerFlags& optimizer) {
  app.add_flag_callback(
      "--no-nesterov", [&optimizer] { optimizer.nesterov = false; },
      "plain momentum");
  AddChoice<bool>(app, "--momentum-convention", optimizer.accumulate,
                  {{"lerp", false}, {"accumulate", true}},
                  "lerp: M = mu M + (1 - mu) G; accumulate: M = mu M + G");
  AddChoice<bool>(app, "--scale", optimizer.match_rms,
                  {{"spectral", false}, {"match_rms", true}},
                  "of Muon's update");
  AddChoice<QkvLayout>(app, "--qkv", optimizer.qkv,
                       {{"whole", QkvLayout::kWhole},
                        {"packed", QkvLayout::kPacked},
                        {"heads", QkvLayout::kHeads}},
                       "the fused weight of attention as matrices: one, q and "
                       "k and v, or one a head");
  AddChoice<NewtonSchulz>(app, "--newton-schulz", optimizer.newton_schulz,
                          {{"auto", NewtonSchulz::kAuto},
                           {"standard", NewtonSchulz::kStandard},
                           {"gram", NewtonSchulz::kGram}},
                          "form in the store's executor; the baseline's is "
                          "standard");
  AddChoice<Coefficients>(app, "--coefficients", optimizer.coefficients,
                          {{"jordan5", Coefficients::kJordan5},
                           {"polar_express5", Coefficients::kPolarExpress5}},
                          "steps of Newton-Schulz");
}

void AddTiers(CLI::App& app, TierFlags& tiers) {
  AddChoice<TierChoice>(app, "--tier", tiers.tier,
                        {{"default", TierChoice::kDefault},
                         {"host", TierChoice::kHost},
                         {"shared", TierChoice::kShared},
                         {"nvme", TierChoice::kNvme}},
                        "where optimizer state lies; default: shared memory "
                        "for several ranks, pinned memory for one");
  app.add_option("--nvme-dir", tiers.nvme_directory,
                 "folder on the disk that --tier nvme and --memory-budget use")
      ->check(CLI::ExistingDirectory);
  app.add_option("--memory-budget", tiers.memory_budget_bytes,
                 "bytes of memory that each rank's state may take, such as "
                 "2MB: what does not fit lies in --nvme-dir; 0: no limit")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false).description(""))
      ->transform(Unsigned())  // The last one comes first.
      ->type_name("SIZE");
}

void AddCheckpoints(CLI::App& app, CheckpointFlags& checkpoints) {
  app.add_option("--save-every", checkpoints.save_every,
                 "steps between checkpoints; 0: none")
      ->check(CLI::Range(0, 1'000'000));
  app.add_option("--save-dir", checkpoints.save_directory,
                 "root of the checkpoints: that of --resume, or a folder "
                 "without any");
  app.add_option("--keep", checkpoints.keep,
                 "checkpoints, the newest, that stay in --save-dir; 0: all")
      ->check(CLI::Range(0, 1'000'000));
  app.add_flag("--async", checkpoints.asynchronous,
               "steps go on while a checkpoint is written");
  app.add_option("--resume", checkpoints.resume,
                 "root of checkpoints: go on from the newest good one, of any "
                 "number of ranks and stage")
      ->check(CLI::ExistingDirectory);
}

void AddRun(CLI::App& app, Flags& flags) {
  app.add_option("--steps", flags.num_steps, "those of --resume included")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--batch", flags.batch, "samples a step, over all ranks")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--seed", flags.seed, "of the weights and the data")
      ->check(Unsigned());
  app.add_option("--text", flags.text, "file to learn")
      ->check(CLI::ExistingFile);
  app.add_option("--csv", flags.csv,
                 "file for the loss of each step; --resume goes on with it");
  app.add_option("--threads", flags.num_threads, "of each rank")
      ->check(CLI::Range(1, 1024));
  auto* baseline = app.add_flag("--baseline", flags.baseline,
                                "one process, whole tensors, no store");
  app.add_option("--baseline-split", flags.baseline_split,
                 "gradients in pieces, as so many ranks make them")
      ->check(CLI::Range(1, 1024))
      ->needs(baseline);
  app.add_option("--ranks", flags.num_ranks, "processes")
      ->check(CLI::Range(1, 1024));
  app.add_option("--stage", flags.stage, "of ZeRO")->check(CLI::Range(1, 3));
  app.add_option("--rank", flags.rank)->group("");  // The launcher's.
  app.add_option("--rendezvous", flags.rendezvous)->group("");
  app.add_option("--launcher-pid", flags.launcher_pid)->group("");
  // What only a store has.
  for (const char* option :
       {"--stage", "--tier", "--nvme-dir", "--memory-budget", "--newton-schulz",
        "--save-every", "--save-dir", "--keep", "--async", "--resume"}) {
    baseline->excludes(app.get_option(option));
  }
}

std::string ContradictionOf(const TierFlags& tiers) {
  const bool on_nvme = tiers.tier == TierChoice::kNvme;
  const bool has_budget = tiers.memory_budget_bytes > 0;
  const bool has_directory = !tiers.nvme_directory.empty();
  if ((on_nvme || has_budget) && !has_directory) {
    return "--tier nvme and --memory-budget need --nvme-dir";
  }
  if (has_directory && !on_nvme && !has_budget) {
    return "--nvme-dir needs --tier nvme or --memory-budget";
  }
  if (on_nvme && has_budget) {
    return "--memory-budget chooses what lies on NVMe: leave --tier nvme out";
  }
  return "";
}

std::string ContradictionOf(const CheckpointFlags& checkpoints) {
  if (checkpoints.save_every > 0) {
    return checkpoints.save_directory.empty() ? "--save-every needs --save-dir"
                                              : "";
  }
  if (!checkpoints.save_directory.empty()) {
    return "--save-dir needs --save-every";
  }
  if (checkpoints.keep > 0) return "--keep needs --save-every";
  if (checkpoints.asynchronous) return "--async needs --save-every";
  return "";
}

std::string Contradiction(const Flags& flags) {
  if (flags.baseline && flags.num_ranks > 1) {
    return "--baseline is one process: use --baseline-split, not --ranks";
  }
  const int64_t pieces = flags.baseline ? flags.baseline_split
                                        : static_cast<int64_t>(flags.num_ranks);
  if (flags.batch % pieces != 0) {
    return "--batch " + std::to_string(flags.batch) +
           " cannot be shared equally by " + std::to_string(pieces);
  }
  if (flags.model.dim % flags.model.num_heads != 0) {
    return "--dim must be a multiple of --heads";
  }
  const std::string tiers = ContradictionOf(flags.tiers);
  return tiers.empty() ? ContradictionOf(flags.checkpoints) : tiers;
}

}  // namespace

std::optional<Flags> ParseFlags(int argc, char** argv, int& exit_code) {
  Flags flags;
  CLI::App app{
      "Trains a small GPT on bytes of text with Muon and Adam, whose state "
      "muonstore holds under ZeRO."};
  app.option_defaults()->always_capture_default();
  AddModel(app, flags.model);
  AddRates(app, flags.optimizer);
  AddForms(app, flags.optimizer);
  AddTiers(app, flags.tiers);
  AddCheckpoints(app, flags.checkpoints);
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
