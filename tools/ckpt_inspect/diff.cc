// `diff`: do two checkpoints hold the same state?
#include "src/inspect/diff.h"

#include <cmath>
#include <memory>
#include <string>

#include "tools/ckpt_inspect/command.h"
#include "tools/ckpt_inspect/diff_output.h"
#include "tools/ckpt_inspect/select.h"
#include "tools/common/progress.h"

namespace muonstore::tools {
namespace {

struct DiffFlags {
  SourceFlags a;  // Holds --json, --allow-loss and --jobs of both.
  SourceFlags b;
  Selection selection;
  Tolerance tolerance;
};

// CLI11's own check takes a NaN, to which nothing would be close.
std::string CheckTolerance(const std::string& value) {
  double number = 0;
  const bool usable = CLI::detail::lexical_cast(value, number) &&
                      std::isfinite(number) && number >= 0;
  return usable ? "" : "not a finite number of at least 0: " + value;
}

ExitCode Run(const DiffFlags& flags, Session& session) {
  const auto a = flags.a.Open(session);
  const auto b =
      OpenCheckpoint(session.fs, flags.b.path,
                     {.tag = flags.b.tag, .allow_loss = flags.a.allow_loss});
  DiffReport report;
  {
    ProgressLine progress(StderrIsTerminal());
    DiffOptions options;
    options.tolerance = flags.tolerance;
    options.jobs = flags.a.num_jobs();
    options.progress = progress.callback();
    if (!flags.selection.empty()) {
      options.select = PairSelector(*a, *b, flags.selection);
    }
    report = DiffCheckpoints(*a, *b, options);
  }
  session.out.Write(flags.a.json
                        ? Render(DiffJson(a->info(), b->info(), report))
                        : DiffText(a->info(), b->info(), report));
  return report.same_state() ? ExitCode::kOk : ExitCode::kFinding;
}

}  // namespace

Command AddDiff(CLI::App& root) {
  auto flags = std::make_shared<DiffFlags>();
  CLI::App* app = AddCommand(
      root, "diff",
      {.brief = "Do two checkpoints hold the same state?",
       .details =
           "Tensors are matched by name and kind, whatever the ZeRO stage, "
           "rank count,\n"
           "offload or producer. Equal means the same bits (a NaN equals "
           "itself, 0 is not\n"
           "-0); between dtypes, the same values after widening or rounding. A "
           "weight\n"
           "that only one stores is round(master) and no difference. "
           "Hyper-parameters,\n"
           "steps, counters and the momentum's unit count, too; with --param "
           "or --state\n"
           "only the chosen tensors do. Exits with 1 if the state differs.\n",
       .examples =
           "  ckpt-inspect diff zero2/ckpt zero3/ckpt\n"
           "  ckpt-inspect diff runs/7 runs/7 --tag-a step400 --tag-b step500\n"
           "  ckpt-inspect diff a b --state momentum --rtol 1e-5 --atol "
           "1e-8\n"});
  app->add_option("A", flags->a.path, "A checkpoint, as PATH elsewhere")
      ->required();
  app->add_option("B", flags->b.path, "Another one")->required();
  app->add_option("--tag-a", flags->a.tag, "Which tag of A");
  app->add_option("--tag-b", flags->b.tag, "Which tag of B");
  app->add_option("--param", flags->selection.param,
                  "Parameters to compare (GLOB; * matches dots, too)");
  app->add_option("--state", flags->selection.state,
                  "Kind of state to compare");
  app->add_option("--rtol", flags->tolerance.rtol,
                  "Close where |a - b| <= atol + rtol * |b|")
      ->check(CheckTolerance);
  app->add_option("--atol", flags->tolerance.atol, "See --rtol")
      ->check(CheckTolerance);
  flags->a.AddAllowLoss(*app);
  flags->a.AddJobs(*app);
  flags->a.AddJson(*app);
  return {app, [flags](Session& session) { return Run(*flags, session); }};
}

}  // namespace muonstore::tools
