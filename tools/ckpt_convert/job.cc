#include "tools/ckpt_convert/job.h"

#include <algorithm>
#include <span>
#include <utility>

#include "converters/dry_run_file_system.h"
#include "converters/fingerprinted_sink.h"
#include "converters/target_layout.h"
#include "converters/verify_target.h"
#include "muonstore/error.h"
#include "muonstore/open.h"
#include "src/base/str.h"
#include "src/os/output_root.h"
#include "tools/ckpt_convert/loss_kinds.h"
#include "tools/ckpt_convert/momentum_choice.h"

namespace muonstore::tools {
namespace {

TargetFormat FormatFor(const Options& options, const CheckpointInfo& source) {
  if (options.to) return *options.to;
  if (source.format == "deepspeed") return TargetFormat::kDeepSpeed;
  if (source.format == "native") return TargetFormat::kNative;
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("a ", source.format,
                     " cannot be written; --to says which format to write"),
              {.file = source.path});
}

class Job {
 public:
  Job(const Options& options, std::shared_ptr<FileSystem> fs,
      const JobWatch& watch)
      : options_(options),
        fs_(std::move(fs)),
        target_fs_(options.dry_run ? DryRunFileSystem(fs_) : fs_),
        watch_(watch) {}

  Outcome Run() {
    if (options_.verify && !options_.dry_run) RequireWholeSource();
    Open();
    const TargetLayout layout = Layout();
    watch_.begin_writing();
    os::OutputRoot root(target_fs_, out_.places.target_root);
    const std::unique_ptr<CheckpointSink> sink =
        MakeSink(*source_, layout, root, SinkRequestFor());
    MakePlan(*sink);
    watch_.check();
    if (options_.dry_run) {
      RequireSpace(*fs_, out_.plan);
      LookForValueLosses(*sink);
    } else {
      Write(root, *sink);
    }
    return std::move(out_);
  }

 private:
  std::function<void(uint64_t, uint64_t)> Watch(const std::string& what) {
    return [this, what](uint64_t done, uint64_t total) {
      watch_.progress(what, done, total);
    };
  }

  // Lost elements are refused by the plan, which knows what it takes; weights
  // of their own where the target has none, which Convert finds.
  bool IsAllowed(const std::string& code) const {
    const auto& kinds = options_.allowed_losses;
    return code == "missing_elements" || code == kWeightsLoss ||
           std::find(kinds.begin(), kinds.end(), code) != kinds.end();
  }

  void RequireWholeSource() {
    const VerifyReport report = VerifyCheckpoint(
        fs_, options_.source,
        {.tag = options_.tag, .progress = Watch("checking the source")});
    NoteWeights(report.findings);
    for (const Finding& finding : report.findings) {
      if (finding.severity == Finding::Severity::kFault &&
          !IsAllowed(finding.code)) {
        throw Error(ErrorCode::kDataLoss,
                    "the source is damaged: " + finding.message, finding.place);
      }
    }
  }

  // They pass as they are, but may come from another save.
  void NoteWeights(const std::vector<Finding>& findings) {
    const auto differs = [](const Finding& finding) {
      return finding.code == kWeightsLoss;
    };
    const auto first = std::find_if(findings.begin(), findings.end(), differs);
    if (first == findings.end()) return;
    const auto count = std::count_if(first, findings.end(), differs);
    notes_.push_back(StrCat(
        "warning: ", first->place.tensor, ": ", first->message,
        count > 1 ? StrCat(" (", count - 1, " more tensors like it)") : ""));
  }

  void Open() {
    // Lost elements are a loss of the plan, refused there by kind.
    source_ = OpenCheckpoint(fs_, options_.source,
                             {.tag = options_.tag, .allow_loss = true});
    out_.source = source_->info();
    out_.format = FormatFor(options_, out_.source);
    options_.CheckFor(out_.format);
    out_.places = FindPlaces(out_.source, options_.target, options_.out_tag);
    out_.extras = FindExtras(*fs_, out_.places);
  }

  TargetLayout Layout() {
    if (out_.format == TargetFormat::kSafetensors) {
      return {.partitioning = Partitioning::Build({}, {})};
    }
    LayoutRequest request{.zero_init = options_.zero_init};
    if (!options_.ds_config.empty()) {
      request.settings = ReadRunConfig(*fs_, options_.ds_config);
      RefuseContradiction(request.settings);
    }
    if (options_.stage) request.settings.stage = options_.stage;
    if (options_.offload) request.settings.offload = options_.offload;
    request.settings.num_ranks = options_.world_size;
    std::unique_ptr<Checkpoint> like;
    if (!options_.like.empty()) {
      like = OpenCheckpoint(fs_, options_.like, {.allow_loss = true});
      request.like = like.get();
    }
    LayoutChoice choice = ChooseLayout(*source_, request);
    RefuseNvme(choice.layout, request);
    choice.layout.momentum_scale = ChooseMomentumScale(
        options_.momentum_scale, out_.source, choice.layout, notes_);
    notes_.insert(notes_.end(), choice.notes.begin(), choice.notes.end());
    out_.layout = choice.layout;
    return std::move(choice.layout);
  }

  void RefuseContradiction(const RunSettings& config) const {
    if (options_.stage && config.stage && options_.stage != config.stage) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--stage contradicts the config; leave one of them out",
                  {.file = options_.ds_config,
                   .expected = StrCat(*options_.stage),
                   .found = StrCat(*config.stage)});
    }
  }

  // In the name of what asks for it.
  void RefuseNvme(const TargetLayout& layout,
                  const LayoutRequest& request) const {
    if (out_.format != TargetFormat::kDeepSpeed || layout.offload != "nvme") {
      return;
    }
    throw Error(
        ErrorCode::kInvalidArgument,
        "offload to NVMe cannot be written: DeepSpeed does not load optimizer "
        "state into an NVMe run. Write --offload cpu and resume with "
        "offload_optimizer.device \"cpu\"",
        {.file = request.settings.offload  ? options_.ds_config
                 : request.like != nullptr ? request.like->info().path
                                           : out_.source.path});
  }

  SinkRequest SinkRequestFor() const {
    SinkRequest request{.format = out_.format,
                        .tag = out_.places.tag,
                        .overwrite = options_.overwrite,
                        .zstd_level = options_.zstd_level.value_or(0),
                        .dtype = options_.dtype};
    if (options_.state) request.state = CanonicalStateKind(*options_.state);
    if (options_.max_shard_bytes) {
      request.max_shard_bytes = *options_.max_shard_bytes;
    }
    return request;
  }

  // What a real run finds on its way.
  void LookForValueLosses(const CheckpointSink& sink) {
    AddLosses(FindValueLosses(*source_, sink, out_.plan,
                              Work("looking for values that would be lost")));
    out_.refused = out_.plan.Refused(options_.allowed_losses);
  }

  void AddLosses(std::span<const SinkLoss> losses) {
    out_.plan.losses.insert(out_.plan.losses.end(), losses.begin(),
                            losses.end());
  }

  ConvertOptions Work(const std::string& what) {
    return {.memory_limit_bytes = options_.memory_limit_bytes,
            .jobs = options_.num_jobs(),
            .allowed_losses = options_.allowed_losses,
            .progress = Watch(what),
            .fs = fs_};
  }

  void MakePlan(const CheckpointSink& sink) {
    out_.plan = PlanConversion(*source_, sink);
    out_.plan.notes.insert(out_.plan.notes.begin(), notes_.begin(),
                           notes_.end());
    out_.needed_bytes = NeededBytes(out_.plan);
    AddFindings();
    if (options_.carry_files) AddSpecialFiles();
    out_.refused = out_.plan.Refused(options_.allowed_losses);
  }

  // State that the source itself should hold and does not.
  void AddFindings() {
    for (const Finding& finding : out_.source.findings) {
      if (finding.severity == Finding::Severity::kFault) {
        out_.plan.losses.push_back(
            {.kind = finding.code, .message = finding.message});
      } else if (finding.severity == Finding::Severity::kWarning) {
        out_.plan.notes.push_back("warning: " + finding.message);
      }
    }
  }

  void AddSpecialFiles() {
    for (const std::string& name : FindSpecialFiles(*fs_, out_.extras)) {
      out_.plan.losses.push_back(
          {.kind = kSpecialFilesLoss,
           .message = StrCat(Printable(name),
                             ": a pipe, socket or device is not copied")});
    }
  }

  void Write(os::OutputRoot& root, CheckpointSink& sink) {
    const bool sets_latest = out_.format != TargetFormat::kSafetensors &&
                             (options_.set_latest || !HasLatest());
    std::unique_ptr<os::StagedFile> latest;
    std::optional<StagedCarry> carry;
    std::optional<os::SetAside> fingerprint;
    ConvertOptions work = Work("writing");
    work.before_commit = [&](std::span<const SinkLoss> found) {
      if (options_.verify) Compare(sink, found);
      if (options_.carry_files) {
        carry.emplace(root, out_.extras, watch_.check);
      }
      if (sets_latest) latest = os::StageLatest(root, out_.places.tag);
      // DeepSpeed's sink, which has one of its own, does so itself.
      if (options_.overwrite && out_.format != TargetFormat::kDeepSpeed) {
        fingerprint.emplace(root, FingerprintName(out_.places.tag));
      }
      watch_.before_commit();
    };
    AddLosses(Convert(*source_, sink, out_.plan, work));
    if (fingerprint) fingerprint->Drop();
    if (carry) {
      out_.carried = carry->Commit();
      out_.extras = carry->extras();
    }
    if (sets_latest) latest->Commit();
    out_.latest_written = sets_latest;
  }

  void Compare(const CheckpointSink& sink, std::span<const SinkLoss> found) {
    ConversionPlan plan = out_.plan;
    plan.losses.insert(plan.losses.end(), found.begin(), found.end());
    VerifyTarget(*source_, sink, plan,
                 {.jobs = options_.num_jobs(), .progress = Watch("comparing")});
    out_.verified = true;
  }

  // An empty file, as a program that died may leave, names no tag.
  bool HasLatest() const {
    const std::string latest = out_.places.target_root + "/latest";
    const auto status = fs_->Stat(latest);
    const bool is_empty =
        status && status->type == FileType::kRegular && status->size_bytes == 0;
    return !is_empty && (fs_->ReadLink(latest) || status);
  }

  const Options& options_;
  std::shared_ptr<FileSystem> fs_;
  std::shared_ptr<FileSystem> target_fs_;  // Takes no writes in a dry run.
  const JobWatch& watch_;
  std::unique_ptr<Checkpoint> source_;
  std::vector<std::string> notes_;
  Outcome out_;
};

}  // namespace

Outcome RunJob(const Options& options, const std::shared_ptr<FileSystem>& fs,
               const JobWatch& watch) {
  return Job(options, fs, watch).Run();
}

}  // namespace muonstore::tools
