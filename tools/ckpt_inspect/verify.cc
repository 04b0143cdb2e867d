// `verify`: is the checkpoint whole?
#include <cstddef>
#include <limits>

#include "src/base/str.h"
#include "tools/ckpt_inspect/command.h"
#include "tools/ckpt_inspect/verify_output.h"
#include "tools/common/progress.h"
#include "tools/common/units.h"

namespace muonstore::tools {
namespace {

struct VerifyFlags {
  SourceFlags source;
  bool quick = false;
  bool all = false;

  // JSON is for programs: nothing is left out.
  size_t max_names() const {
    return all || source.json ? std::numeric_limits<size_t>::max()
                              : VerifyOptions().max_names;
  }
};

int64_t NumFaults(const VerifyReport& report) {
  int64_t count = 0;
  for (const Finding& finding : report.findings) {
    if (finding.severity == Finding::Severity::kFault) ++count;
  }
  return count;
}

std::string AsText(const VerifyReport& report, bool quick) {
  std::string out;
  for (const Finding& finding : report.findings) {
    out += StrCat(SeverityName(finding.severity), " ", finding.code, ": ",
                  Printable(finding.ToString()), "\n");
  }
  out += StrCat(Counted(report.num_files, "file", "files"), ", ",
                HumanBytes(report.size_bytes), ", ",
                Counted(NumFaults(report), "fault", "faults"),
                quick ? " (names, sizes and directories only)" : "", "\n");
  return out;
}

ExitCode Run(const VerifyFlags& flags, Session& session) {
  VerifyReport report;
  {
    ProgressLine progress(StderrIsTerminal());
    report = VerifyCheckpoint(session.fs, flags.source.path,
                              {.tag = flags.source.tag,
                               .quick = flags.quick,
                               .max_names = flags.max_names(),
                               .progress = progress.callback()});
  }
  session.out.Write(flags.source.json ? Render(VerifyJson(report, flags.quick))
                                      : AsText(report, flags.quick));
  return report.whole() ? ExitCode::kOk : ExitCode::kFinding;
}

}  // namespace

Json VerifyJson(const VerifyReport& report, bool quick) {
  Json json = JsonEnvelope("verify");
  json["path"] = report.path;
  json["tag"] = report.tag;
  json["quick"] = quick;
  json["whole"] = report.whole();
  json["num_files"] = report.num_files;
  json["size_bytes"] = report.size_bytes;
  json["num_faults"] = NumFaults(report);
  json["findings"] = Json::array();
  for (const Finding& finding : report.findings) {
    json["findings"].push_back(ToJson(finding));
  }
  return json;
}

Command AddVerify(CLI::App& root) {
  auto flags = std::make_shared<VerifyFlags>();
  CLI::App* app = AddCommand(
      root, "verify",
      {.brief = "Is the checkpoint whole? Every fault, not only the first",
       .details = "Checks every byte against its checksum, that the ranks' "
                  "pieces cover every\n"
                  "element exactly once, that ranks agree, and that no file is "
                  "missing or\n"
                  "extra. Exits with 1 if there is a fault.\n",
       .examples = "  ckpt-inspect verify runs/7\n"
                   "  ckpt-inspect verify runs/7 --tag step500 --quick\n"
                   "  ckpt-inspect verify runs/7 --json | jq '.findings'\n"});
  flags->source.AddPath(*app);
  flags->source.AddTag(*app);
  app->add_flag("--quick", flags->quick,
                "Names, sizes and directories only; no payload is read");
  app->add_flag("--all", flags->all,
                "Name every tensor in what is damaged, not the first five "
                "(--json always does)");
  flags->source.AddJson(*app);
  return {app, [flags](Session& session) { return Run(*flags, session); }};
}

}  // namespace muonstore::tools
