#include "tools/ckpt_convert/report.h"

#include <algorithm>

#include "src/base/str.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

// Longer lists are counted.
constexpr size_t kMaxLines = 20;

std::string Line(std::string_view label, const std::string& text) {
  const std::string padding(label.size() < 10 ? 10 - label.size() : 1, ' ');
  return StrCat("  ", label, padding, text, "\n");
}

std::string CutText(int32_t stage, int32_t num_ranks,
                    const std::string& precision, const std::string& offload) {
  return StrCat("ZeRO-", stage, ", ", Counted(num_ranks, "rank", "ranks"), ", ",
                precision, ", offload ", offload);
}

std::string SourceText(const CheckpointInfo& source) {
  if (!source.stage) return source.format;
  return StrCat(source.format, ", ",
                CutText(*source.stage, source.num_ranks, source.precision,
                        source.offload));
}

std::string TargetText(const Outcome& outcome) {
  std::string format(TargetFormatName(outcome.format));
  if (!outcome.layout) return format;
  const TargetLayout& layout = *outcome.layout;
  return StrCat(format, ", ",
                CutText(layout.rule.stage, layout.rule.num_ranks,
                        layout.precision, layout.offload));
}

// Shards come with an index, which holds no tensors.
std::string FilesText(const Outcome& outcome) {
  const auto count = static_cast<int64_t>(outcome.plan.file_bytes.size());
  const bool sharded =
      outcome.format == TargetFormat::kSafetensors && count > 1;
  return StrCat(sharded ? StrCat(count, " shards and an index")
                        : Counted(count, "file", "files"),
                ", ", HumanBytes(outcome.plan.payload_bytes), " of tensors");
}

std::string LossLines(const Options& options, const Outcome& outcome) {
  std::string text;
  size_t count = 0;
  for (const SinkLoss& loss : outcome.plan.losses) {
    if (++count > kMaxLines) continue;
    const bool allowed =
        loss.is_chosen ||
        std::find(options.allowed_losses.begin(), options.allowed_losses.end(),
                  loss.kind) != options.allowed_losses.end();
    text +=
        Line(loss.is_chosen ? "left out" : "lost",
             Printable(loss.message) +
                 (allowed ? "" : " (needs --allow-loss " + loss.kind + ")"));
  }
  if (count > kMaxLines) {
    text += Line("lost", StrCat(count - kMaxLines, " more"));
  }
  return text;
}

bool IsAny(const Extra& /*extra*/) { return true; }
bool IsThere(const Extra& extra) { return extra.is_there; }
bool IsCopied(const Extra& extra) {
  return !extra.is_there && !extra.is_special;
}

std::vector<std::string> ExtraNames(const Outcome& outcome,
                                    bool (*is_one)(const Extra&)) {
  std::vector<std::string> names;
  for (const Extra& extra : outcome.extras) {
    if (is_one(extra)) names.push_back(Printable(extra.name));
  }
  return names;
}

std::vector<std::string> PrintableNames(const std::vector<std::string>& raw) {
  std::vector<std::string> names;
  names.reserve(raw.size());
  for (const std::string& name : raw) names.push_back(Printable(name));
  return names;
}

std::string NameLine(std::string_view label,
                     const std::vector<std::string>& names,
                     std::string_view what) {
  return names.empty() ? "" : Line(label, StrCat(JoinNames(names, 8), what));
}

// Special files are among the losses.
std::string BesideLines(const Options& options, const Outcome& outcome) {
  if (!options.carry_files) {
    return NameLine("beside", ExtraNames(outcome, IsAny),
                    ": not copied (see --carry-files)");
  }
  const std::string copied =
      options.dry_run ? NameLine("beside", ExtraNames(outcome, IsCopied),
                                 ": would be copied")
                      : NameLine("copied", PrintableNames(outcome.carried), "");
  return copied +
         NameLine("beside", ExtraNames(outcome, IsThere), ": there already");
}

std::string_view VerifiedText(const Outcome& outcome) {
  if (!outcome.verified) return "";
  return outcome.plan.losses.empty()
             ? "; verified: equal to the source"
             : "; verified: equal to the source but for what is lost or left "
               "out above";
}

std::string LastLine(const Options& options, const Outcome& outcome) {
  const std::string path = Printable(outcome.places.target_path());
  if (options.dry_run) {
    return StrCat("would write ", path, "; needs ",
                  HumanBytes(outcome.needed_bytes), " of free space\n");
  }
  return StrCat("wrote ", path,
                outcome.latest_written ? ", which latest now names" : "",
                VerifiedText(outcome), "\n");
}

}  // namespace

std::string ReportText(const Options& options, const Outcome& outcome) {
  std::string text = Line("from", StrCat(Printable(outcome.source.path), " (",
                                         SourceText(outcome.source), ")"));
  text += Line("to", StrCat(Printable(outcome.places.target_path()), " (",
                            TargetText(outcome), ")"));
  text += Line("files", FilesText(outcome));
  for (const std::string& note : outcome.plan.notes) {
    text += Line("note", Printable(note));
  }
  text += LossLines(options, outcome);
  text += BesideLines(options, outcome);
  return text + LastLine(options, outcome);
}

Json ReportJson(const Options& options, const Outcome& outcome) {
  Json json = JsonEnvelope("convert");
  json["dry_run"] = options.dry_run;
  Json& source = json["source"];
  source["path"] = outcome.source.path;
  source["tag"] = outcome.source.tag;
  source["format"] = outcome.source.format;
  source["stage"] = ToJson(outcome.source.stage);
  source["num_ranks"] = outcome.source.num_ranks;
  Json& target = json["target"];
  target["path"] = outcome.places.target_path();
  target["tag"] = outcome.places.tag;
  target["format"] = TargetFormatName(outcome.format);
  if (outcome.layout) {
    target["stage"] = outcome.layout->rule.stage;
    target["num_ranks"] = outcome.layout->rule.num_ranks;
    target["precision"] = outcome.layout->precision;
    target["offload"] = outcome.layout->offload;
  }
  target["file_bytes"] = outcome.plan.file_bytes;
  target["payload_bytes"] = outcome.plan.payload_bytes;
  target["needed_bytes"] = outcome.needed_bytes;
  json["notes"] = outcome.plan.notes;
  json["losses"] = Json::array();
  for (const SinkLoss& loss : outcome.plan.losses) {
    json["losses"].push_back({{"kind", loss.kind},
                              {"message", loss.message},
                              {"chosen", loss.is_chosen}});
  }
  json["beside"] = ExtraNames(outcome, IsAny);
  json["carried"] = outcome.carried;
  json["latest_written"] = outcome.latest_written;
  json["verified"] = outcome.verified;
  return json;
}

}  // namespace muonstore::tools
