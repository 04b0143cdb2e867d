#include "tools/ckpt_inspect/command.h"

#include <algorithm>
#include <thread>

namespace muonstore::tools {

void SourceFlags::AddPath(CLI::App& app) {
  app.add_option("PATH", path,
                 "Checkpoint root, tag directory, torch.save file, or a run "
                 "folder that holds a checkpoint")
      ->required();
}

void SourceFlags::AddTag(CLI::App& app) {
  app.add_option("--tag", tag,
                 "Which tag of a root (default: the one that 'latest' names, "
                 "or the only one)");
}

void SourceFlags::AddJson(CLI::App& app) {
  app.add_flag("--json", json,
               "Print one JSON object and nothing else on standard output");
}

void SourceFlags::AddAllowLoss(CLI::App& app) {
  app.add_flag("--allow-loss", allow_loss,
               "Open although the writer lost elements; take the rest");
}

void SourceFlags::AddJobs(CLI::App& app) {
  app.add_option("--jobs", jobs, "Threads (default: one a processor)")
      ->check(CLI::Range(1, 1024));
}

int32_t SourceFlags::num_jobs() const {
  if (jobs > 0) return jobs;
  return std::max(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

std::unique_ptr<Checkpoint> SourceFlags::Open(const Session& session) const {
  return OpenCheckpoint(session.fs, path,
                        {.tag = tag, .allow_loss = allow_loss});
}

CLI::App* AddCommand(CLI::App& root, const std::string& name,
                     const CommandHelp& help) {
  CLI::App* app = root.add_subcommand(name, help.brief);
  app->footer(help.details + (help.details.empty() ? "" : "\n") +
              "Examples:\n" + help.examples + "\n" + kExitCodeHelp);
  return app;
}

}  // namespace muonstore::tools
