// What every command of ckpt-inspect gets and gives.
//
// What: a command registers its flags with CLI11 and returns a function that
//   runs it. Flags and printing only: the work is in src/inspect and behind
//   include/muonstore/open.h.
// Threads: commands run one at a time, on the main thread.
// Failures: commands throw Error; main prints it and picks the exit code.

#ifndef MUONSTORE_TOOLS_CKPT_INSPECT_COMMAND_H_
#define MUONSTORE_TOOLS_CKPT_INSPECT_COMMAND_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "muonstore/file_system.h"
#include "muonstore/open.h"
#include "tools/common/exit_code.h"
#include "tools/common/interrupts.h"
#include "tools/common/output.h"

#include <CLI/CLI.hpp>

namespace muonstore::tools {

struct Session {
  std::shared_ptr<FileSystem> fs;
  Output& out;
  Interrupts& interrupts;
};

struct Command {
  CLI::App* app = nullptr;
  std::function<ExitCode(Session&)> run;
};

Command AddSummary(CLI::App& root);
Command AddList(CLI::App& root);
Command AddTensors(CLI::App& root);
Command AddStats(CLI::App& root);
Command AddMomentum(CLI::App& root);
Command AddVerify(CLI::App& root);
Command AddDiff(CLI::App& root);
Command AddDump(CLI::App& root);

// Flags that several commands share.
struct SourceFlags {
  std::string path;
  std::string tag;
  bool json = false;
  bool allow_loss = false;
  int32_t jobs = 0;  // 0: one a processor.

  void AddPath(CLI::App& app);
  void AddTag(CLI::App& app);
  void AddJson(CLI::App& app);
  void AddAllowLoss(CLI::App& app);
  void AddJobs(CLI::App& app);

  int32_t num_jobs() const;
  std::unique_ptr<Checkpoint> Open(const Session& session) const;
};

struct CommandHelp {
  std::string brief;     // One line, for the list of commands, too.
  std::string details;   // More lines; may be empty.
  std::string examples;  // Lines, each with its newline.
};

// The subcommand; its help ends with details, examples and exit codes.
CLI::App* AddCommand(CLI::App& root, const std::string& name,
                     const CommandHelp& help);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_INSPECT_COMMAND_H_
