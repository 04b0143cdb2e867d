// `summary`: what a checkpoint is and holds, by the headers of rank 0.
#include "tools/ckpt_inspect/command.h"
#include "tools/ckpt_inspect/summary_output.h"

namespace muonstore::tools {
namespace {

struct SummaryFlags {
  SourceFlags source;
  bool verbose = false;
};

}  // namespace

Command AddSummary(CLI::App& root) {
  auto flags = std::make_shared<SummaryFlags>();
  CLI::App* app = AddCommand(
      root, "summary",
      {.brief = "What a checkpoint is and holds (the default command)",
       .details = "Format, step, stage, ranks, momentum record, groups with "
                  "hyper-parameters,\n"
                  "and counts and bytes of each kind of state. Reads headers "
                  "of rank 0 only.\n",
       .examples = "  ckpt-inspect runs/7\n"
                   "  ckpt-inspect summary runs/7 --tag step500 --verbose\n"
                   "  ckpt-inspect summary pytorch_model.bin --json\n"});
  flags->source.AddPath(*app);
  flags->source.AddTag(*app);
  app->add_flag("-v,--verbose", flags->verbose,
                "List every frozen name and every value that is carried along");
  flags->source.AddJson(*app);
  return {app, [flags](Session& session) {
            const auto checkpoint =
                OpenCheckpoint(session.fs, flags->source.path,
                               {.tag = flags->source.tag,
                                .allow_loss = true,
                                .headers_of_rank_zero_only = true});
            session.out.Write(flags->source.json
                                  ? Render(SummaryJson(*checkpoint))
                                  : SummaryText(*checkpoint, flags->verbose));
            return ExitCode::kOk;
          }};
}

}  // namespace muonstore::tools
