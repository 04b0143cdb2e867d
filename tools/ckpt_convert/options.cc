#include "tools/ckpt_convert/options.h"

#include <algorithm>
#include <map>
#include <thread>

#include "converters/job_shares.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/tensor/training_dtype.h"
#include "tools/ckpt_convert/loss_kinds.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

[[noreturn]] void Refuse(const std::string& option,
                         const std::string& message) {
  throw CLI::ValidationError(option, message);
}

// An option whose text becomes a value of another type.
template <typename Parse>
CLI::Option* AddParsed(CLI::App& app, const std::string& name, Parse parse,
                       const std::string& help, const std::string& type) {
  return app
      .add_option_function<std::string>(
          name, [parse, name](const std::string& text) { parse(name, text); },
          help)
      ->type_name(type);
}

uint64_t ToBytes(const std::string& name, const std::string& text) {
  const auto bytes = ParseBytes(text);
  if (!bytes) Refuse(name, "takes a size such as 256MiB or 5GB, not " + text);
  return *bytes;
}

void AddPlaces(CLI::App& app, Options& options) {
  app.add_option("SRC", options.source,
                 "Checkpoint root, tag directory, torch.save file, or a run "
                 "folder that holds a checkpoint; only read")
      ->required();
  app.add_option("DST", options.target,
                 "Root to write into; the checkpoint becomes DST/TAG")
      ->required();
  AddParsed(
      app, "--to",
      [&options](const std::string& name, const std::string& text) {
        for (const TargetFormat format :
             {TargetFormat::kNative, TargetFormat::kDeepSpeed,
              TargetFormat::kSafetensors}) {
          if (text == TargetFormatName(format)) options.to = format;
        }
        if (!options.to) Refuse(name, "takes native, deepspeed or safetensors");
      },
      "Format of the target (default: the source's)",
      "native|deepspeed|safetensors");
  app.add_option("--tag", options.tag,
                 "Which tag of SRC (default: the one that 'latest' names, or "
                 "the only one)");
  app.add_option("--out-tag", options.out_tag,
                 "Name of the new tag (default: the source's)");
  app.add_flag("--overwrite", options.overwrite,
               "Replace DST/TAG if it exists, as a whole or not at all");
  app.add_flag("--set-latest", options.set_latest,
               "Let DST/latest name the new tag (default: only where there is "
               "no DST/latest)");
  app.add_flag("--carry-files", options.carry_files,
               "Copy what lies beside the source's tag into DST, and unknown "
               "files of the tag into the new one");
}

void AddLayout(CLI::App& app, Options& options) {
  const std::string group = "How the target is cut (default: as the source)";
  app.add_option("--stage", options.stage, "ZeRO stage")
      ->check(CLI::Range(1, 3))
      ->group(group);
  app.add_option("--world-size", options.world_size, "Number of ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  AddParsed(
      app, "--offload",
      [&options](const std::string& name, const std::string& text) {
        if (text == "nvme") {
          Refuse(name,
                 "nvme cannot be written: DeepSpeed does not load optimizer "
                 "state into an NVMe run. Write --offload cpu and resume with "
                 "offload_optimizer.device \"cpu\"");
        }
        if (text != "none" && text != "cpu") Refuse(name, "takes none or cpu");
        options.offload = text;
      },
      "Where the run that loads it keeps optimizer state", "none|cpu")
      ->group(group);
  AddParsed(
      app, "--zero-init",
      [&options](const std::string& name, const std::string& text) {
        if (text != "yes" && text != "no") Refuse(name, "takes yes or no");
        options.zero_init = text == "yes";
      },
      "Whether the run that loads a stage-3 target builds its model under "
      "deepspeed.zero.Init: it decides the order of the Muon parameters",
      "yes|no")
      ->group(group);
  app.add_option("--like", options.like,
                 "Cut and order exactly as this checkpoint, which the target "
                 "run saved; other options may not contradict it, but for "
                 "--offload")
      ->type_name("CKPT")
      ->group(group);
  app.add_option("--ds-config", options.ds_config,
                 "Take stage, offload, precision, sub-group size, round robin "
                 "and alignment from the target run's DeepSpeed config; "
                 "--offload goes before it, --stage may not contradict it")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--momentum-scale", options.momentum_scale,
                 "Of fp16: the loss scale whose unit the momentum is in "
                 "(source without offload; auto replays the loss scaler's "
                 "counters) or gets (target without offload; auto takes the "
                 "one that training goes on with)")
      ->type_name("S|auto")
      ->group(group);
}

void AddFormats(CLI::App& app, Options& options) {
  app.add_option("--zstd", options.zstd_level,
                 "Compress (byte shuffle and zstd); 0: do not, the default")
      ->check(CLI::Range(0, 19))
      ->type_name("LEVEL")
      ->group("native");
  const std::string group = "safetensors";
  app.add_option("--state", options.state,
                 "Which state: weight (default), master, momentum, ...")
      ->type_name("KIND")
      ->group(group);
  AddParsed(
      app, "--dtype",
      [&options](const std::string& name, const std::string& text) {
        options.dtype = ParseDType(text);
        if (!options.dtype || !IsTrainingDType(*options.dtype)) {
          Refuse(name, StrCat("takes ", kTrainingDTypes));
        }
      },
      "DType of the parameters (default: as stored)", "f32|bf16|f16")
      ->group(group);
  AddParsed(
      app, "--max-shard-size",
      [&options](const std::string& name, const std::string& text) {
        options.max_shard_bytes = ToBytes(name, text);
        if (options.max_shard_bytes == 0) Refuse(name, "must be larger than 0");
      },
      "Most bytes of tensors in a file (default: 5GB); a larger tensor has a "
      "file of its own",
      "SIZE")
      ->group(group);
}

void AddWork(CLI::App& app, Options& options) {
  AddParsed(
      app, "--memory-limit",
      [&options](const std::string& name, const std::string& text) {
        options.memory_limit_bytes = ToBytes(name, text);
      },
      "Of all buffers together (default: 1GiB)", "SIZE");
  app.add_option("--jobs", options.jobs, "Threads (default: one a processor)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--allow-loss", options.allowed_losses,
                 "Kinds of loss that are accepted (listed below); a refused "
                 "loss names its kind")
      ->delimiter(',')
      ->check([](const std::string& kind) {
        return IsLossKind(kind) ? std::string()
                                : StrCat("there is no kind of loss ", kind,
                                         "; the kinds are ", LossKindNames());
      })
      ->type_name("KIND,...");
  app.add_flag("--dry-run", options.dry_run,
               "Print what would be written, lost and needed; write nothing");
  app.add_flag("--verify", options.verify,
               "Check the source's checksums first; before the target becomes "
               "visible, open it again and compare it with the source");
  app.add_flag("--json", options.json,
               "Print one JSON object and nothing else on standard output");
}

}  // namespace

int32_t Options::num_jobs() const {
  const auto all = static_cast<int32_t>(std::thread::hardware_concurrency());
  return JobsWithin(memory_limit_bytes, jobs > 0 ? jobs : all);
}

void Options::CheckFor(TargetFormat format) const {
  const auto refuse = [&](bool given, const char* option, const char* of) {
    if (!given) return;
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(option, " is for --to ", of, "; the target is ",
                       TargetFormatName(format)));
  };
  refuse(zstd_level && format != TargetFormat::kNative, "--zstd", "native");
  // Native files keep the source's unit.
  refuse(!momentum_scale.empty() && format == TargetFormat::kNative,
         "--momentum-scale", "deepspeed");
  if (format != TargetFormat::kSafetensors) {
    refuse(state.has_value(), "--state", "safetensors");
    refuse(dtype.has_value(), "--dtype", "safetensors");
    refuse(max_shard_bytes.has_value(), "--max-shard-size", "safetensors");
    return;
  }
  const char* cut = "deepspeed or native";
  refuse(stage.has_value(), "--stage", cut);
  refuse(world_size.has_value(), "--world-size", cut);
  refuse(offload.has_value(), "--offload", cut);
  refuse(zero_init.has_value(), "--zero-init", cut);
  refuse(!like.empty(), "--like", cut);
  refuse(!ds_config.empty(), "--ds-config", cut);
  refuse(!momentum_scale.empty(), "--momentum-scale", cut);
  refuse(set_latest, "--set-latest", cut);
}

void AddOptions(CLI::App& app, Options& options) {
  AddPlaces(app, options);
  AddLayout(app, options);
  AddFormats(app, options);
  AddWork(app, options);
}

}  // namespace muonstore::tools
