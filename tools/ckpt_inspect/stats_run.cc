#include "tools/ckpt_inspect/stats_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/inspect/stats.h"
#include "tools/ckpt_inspect/stats_output.h"
#include "tools/common/progress.h"

namespace muonstore::tools {
namespace {

std::optional<MatrixLayout> Layout(const StatsFlags& flags) {
  if (flags.num_heads > 0) return MatrixLayout::PerHead(flags.num_heads);
  if (!flags.row_sizes.empty()) {
    return MatrixLayout::PackedRows(flags.row_sizes);
  }
  if (flags.whole) return MatrixLayout::Whole();
  return std::nullopt;
}

std::string LayoutName(const StatsFlags& flags, const Checkpoint& checkpoint) {
  if (const auto layout = Layout(flags)) return layout->ToString();
  return checkpoint.info().matrix_layouts.empty()
             ? MatrixLayout::Whole().ToString()
             : "recorded";
}

std::vector<MatrixFlag> FailOn(const StatsFlags& flags) {
  std::vector<MatrixFlag> out;
  for (const std::string& word : flags.fail_on) {
    const auto flag = ParseMatrixFlag(word);
    if (!flag) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("--fail-on knows missing, nonfinite, zero, identical "
                         "and denormal, not '",
                         word, "'"));
    }
    if (*flag == MatrixFlag::kIdentical && flags.other_path.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--fail-on identical needs --vs PATH2 to compare with");
    }
    out.push_back(*flag);
  }
  return out;
}

std::vector<MatrixReport> Compute(const StatsFlags& flags,
                                  const Checkpoint& checkpoint,
                                  const Checkpoint* other) {
  ProgressLine progress(StderrIsTerminal());
  auto reports = ComputeStats(
      checkpoint, {.tensors = SelectTensors(checkpoint, flags.selection),
                   .layout = Layout(flags),
                   .other = other,
                   .num_singular_values = flags.top,
                   .jobs = flags.source.num_jobs(),
                   .progress = progress.callback()});
  SortWorstFirst(reports);
  return reports;
}

// Old versions never stored momentum: that is a finding about the checkpoint,
// not a mistake on the command line.
const Finding* MissingMomentum(const StatsFlags& flags,
                               const Checkpoint& checkpoint) {
  const auto tensors = checkpoint.tensors();
  const bool none =
      CanonicalStateKind(flags.selection.state) == kMomentum &&
      std::none_of(tensors.begin(), tensors.end(), [](const auto& tensor) {
        return tensor.key.kind == kMomentum;
      });
  const auto& findings = checkpoint.info().findings;
  const auto it = std::find_if(
      findings.begin(), findings.end(),
      [](const auto& finding) { return finding.code == "momentum_missing"; });
  return none && it != findings.end() ? &*it : nullptr;
}

}  // namespace

ExitCode RunStats(const StatsFlags& flags, const std::string& command,
                  Session& session) {
  const std::vector<MatrixFlag> fail_on = FailOn(flags);
  const auto checkpoint = flags.source.Open(session);
  std::unique_ptr<Checkpoint> other;
  if (!flags.other_path.empty()) {
    other = OpenCheckpoint(
        session.fs, flags.other_path,
        {.tag = flags.other_tag, .allow_loss = flags.source.allow_loss});
  }
  const Finding* missing = MissingMomentum(flags, *checkpoint);
  std::vector<MatrixReport> reports;
  if (missing == nullptr) reports = Compute(flags, *checkpoint, other.get());
  if (flags.source.json) {
    Json json = JsonEnvelope(command);
    json["path"] = checkpoint->info().path;
    json["other_path"] = other ? Json(other->info().path) : Json(nullptr);
    json["layout"] = LayoutName(flags, *checkpoint);
    AddStatsJson(reports, json);
    json["finding"] = missing ? ToJson(*missing) : Json(nullptr);
    session.out.Write(Render(json));
  } else {
    session.out.Write(missing ? Printable(missing->ToString()) + "\n"
                              : StatsText(reports, other != nullptr));
  }
  const bool failed =
      std::any_of(reports.begin(), reports.end(), [&](const auto& report) {
        return std::any_of(fail_on.begin(), fail_on.end(),
                           [&](MatrixFlag flag) { return report.Has(flag); });
      });
  return failed || missing ? ExitCode::kFinding : ExitCode::kOk;
}

}  // namespace muonstore::tools
