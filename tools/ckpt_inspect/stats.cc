// `stats` and `momentum`: is the state healthy?

#include <memory>

#include "src/inspect/singular_values.h"
#include "tools/ckpt_inspect/command.h"
#include "tools/ckpt_inspect/stats_run.h"

namespace muonstore::tools {
namespace {

void AddMatrixFlags(CLI::App& app, StatsFlags& flags) {
  app.add_option("--param", flags.selection.param,
                 "Parameters to look at (GLOB; * matches dots, too)");
  auto* heads = app.add_option("--per-head", flags.num_heads,
                               "One matrix a head: equal row blocks, this many")
                    ->check(CLI::PositiveNumber);
  auto* split =
      app.add_option("--split", flags.row_sizes,
                     "One matrix a row block: their rows, as in 24,24,24")
          ->delimiter(',')
          ->allow_extra_args(false)
          ->check(CLI::NonNegativeNumber)
          ->excludes(heads);
  app.add_flag("--whole", flags.whole,
               "Whole matrices, also where the checkpoint records heads or "
               "packed rows,\nwhich are the matrices otherwise")
      ->excludes(heads)
      ->excludes(split);
  auto* other = app.add_option(
      "--vs", flags.other_path,
      "Another checkpoint: cosine, norm here over norm there, and whether a "
      "matrix is\nidentical");
  app.add_option("--vs-tag", flags.other_tag, "Which tag of --vs")
      ->needs(other);
  app.add_option("--fail-on", flags.fail_on,
                 "Exit with 1 if a matrix is missing, nonfinite, zero, "
                 "identical (with --vs) or denormal; a comma-separated list")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--top", flags.top, "How many singular values")
      ->check(CLI::Range(int64_t{1}, kMaxSingularValues))
      ->capture_default_str();
}

Command Register(CLI::App* app, const std::shared_ptr<StatsFlags>& flags) {
  flags->source.AddPath(*app);
  flags->source.AddTag(*app);
  AddMatrixFlags(*app, *flags);
  flags->source.AddAllowLoss(*app);
  flags->source.AddJobs(*app);
  flags->source.AddJson(*app);
  return {app, [app, flags](Session& session) {
            return RunStats(*flags, app->get_name(), session);
          }};
}

}  // namespace

Command AddStats(CLI::App& root) {
  auto flags = std::make_shared<StatsFlags>();
  CLI::App* app = AddCommand(
      root, "stats",
      {.brief = "Statistics of the matrices of a kind of state, worst first",
       .details = "Per matrix: Frobenius norm, rms, extremes, share of zeros, "
                  "stable rank\n"
                  "|A|_F^2 / |A|_2^2, top singular values, norm as a part of "
                  "the master's.\n"
                  "Flags: missing, nonfinite, zero, identical (to --vs), "
                  "denormal (more than\n"
                  "half of the nonzeros). Worst first: by flag in that order, "
                  "then what is\n"
                  "more than twice or less than half as large as in --vs, then "
                  "whose ratio to the\n"
                  "master is more than 10 times above or below the median of "
                  "those shown (3 or\n"
                  "more), then by the lowest stable rank as a part of the "
                  "smaller side, then by\n"
                  "the largest ratio to the master. Values that JSON lacks are "
                  "\"nan\", \"inf\"\n"
                  "and \"-inf\".\n",
       .examples =
           "  ckpt-inspect stats runs/7 --param '*.qkv.weight' --per-head 12\n"
           "  ckpt-inspect stats runs/7 --state master --fail-on "
           "nonfinite,zero\n"
           "  ckpt-inspect stats runs/7 --vs runs/7 --vs-tag step400 "
           "--fail-on identical\n"});
  app->add_option("--state", flags->selection.state, "Kind of state")
      ->capture_default_str();
  return Register(app, flags);
}

Command AddMomentum(CLI::App& root) {
  auto flags = std::make_shared<StatsFlags>();
  flags->fail_on = {"nonfinite"};
  CLI::App* app = AddCommand(
      root, "momentum",
      {.brief = "Is the momentum healthy? stats --state momentum --fail-on "
                "nonfinite",
       .details =
           "See 'ckpt-inspect stats --help' for what the columns mean.\n",
       .examples =
           "  ckpt-inspect momentum runs/7\n"
           "  ckpt-inspect momentum runs/7 --fail-on nonfinite,zero\n"});
  return Register(app, flags);
}

}  // namespace muonstore::tools
