// ckpt-inspect: looks into optimizer checkpoints, one command at a time.
#include <string>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "tools/ckpt_inspect/arguments.h"
#include "tools/ckpt_inspect/command.h"
#include "tools/common/output.h"
#include "tools/common/program.h"

namespace muonstore::tools {
namespace {

constexpr const char* kDescription =
    "Looks into optimizer checkpoints of Muon runs under DeepSpeed ZeRO: what\n"
    "is there, is it whole, is the momentum healthy, do two hold the same\n"
    "state. Sources are only read; nothing in them is executed.";

constexpr const char* kFooter =
    "Examples:\n"
    "  ckpt-inspect runs/7                 what is in the latest checkpoint\n"
    "  ckpt-inspect verify runs/7          is every byte and rank there\n"
    "  ckpt-inspect momentum runs/7        is the momentum healthy\n"
    "  ckpt-inspect diff runs/7 runs/8     the same state or not\n"
    "  ckpt-inspect COMMAND --help         more on one command\n";

std::vector<Command> AddCommands(CLI::App& app) {
  app.require_subcommand(1);
  return {AddSummary(app),  AddList(app),   AddTensors(app), AddStats(app),
          AddMomentum(app), AddVerify(app), AddDiff(app),    AddDump(app)};
}

int Run(const std::vector<std::string>& arguments) {
  CLI::App app{kDescription};
  Program program(app, "ckpt-inspect", kFooter);
  const std::vector<Command> commands = AddCommands(app);
  return program.Run(arguments, [&](std::vector<std::string> words) {
    words = WithCommandFirst(app, std::move(words));
    if (!words.empty()) program.set_command(words.front());
    if (!program.Parse(std::move(words))) return ExitCode::kOk;
    for (const Command& command : commands) {
      if (!command.app->parsed()) continue;
      Session session{PosixFileSystem(), program.out(), program.interrupts()};
      return command.run(session);
    }
    throw Error(ErrorCode::kInternal, "no command ran");
  });
}

}  // namespace
}  // namespace muonstore::tools

int main(int argc, char** argv) {
  muonstore::tools::ClaimStandardDescriptors();
  return muonstore::tools::Run({argv + 1, argv + argc});
}
