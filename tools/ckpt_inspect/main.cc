// ckpt-inspect: looks into optimizer checkpoints. Parses the command line, runs
// one command and turns failures into messages and exit codes.
#include <algorithm>
#include <csignal>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "tools/ckpt_inspect/arguments.h"
#include "tools/ckpt_inspect/command.h"
#include "tools/common/json.h"

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

// What is known of the command line when something fails.
struct Context {
  std::string command;
  bool json = false;
};

class Program {
 public:
  Program() {
    app_.name("ckpt-inspect");
    app_.footer(std::string(kFooter) + "\n" + kExitCodeHelp);
    app_.set_version_flag("--version", "ckpt-inspect " MUONSTORE_VERSION);
    app_.require_subcommand(1);
    commands_ = {AddSummary(app_), AddList(app_),     AddTensors(app_),
                 AddStats(app_),   AddMomentum(app_), AddVerify(app_),
                 AddDiff(app_),    AddDump(app_)};
    for (const Command& command : commands_) RefuseEmptyValues(*command.app);
  }

  int Run(std::vector<std::string> arguments) {
    context_.json = std::find(arguments.begin(), arguments.end(), "--json") !=
                    arguments.end();
    try {
      return Guarded(std::move(arguments));
    } catch (const Interrupted& interrupted) {
      return interrupted.exit_code();
    } catch (const Error& error) {
      return Report(error);
    } catch (const std::bad_alloc&) {
      return Report(Error(ErrorCode::kResourceExhausted,
                          "out of memory; fewer --jobs need less"));
    } catch (const std::exception& error) {
      return Report(Error(ErrorCode::kInternal, error.what()));
    }
  }

 private:
  int Guarded(std::vector<std::string> arguments) {
    arguments = WithCommandFirst(app_, std::move(arguments));
    if (!arguments.empty()) context_.command = arguments.front();
    try {
      // CLI11 takes them from the back.
      std::reverse(arguments.begin(), arguments.end());
      app_.parse(arguments);
    } catch (const CLI::Success& success) {
      return Help(success);
    } catch (const CLI::ParseError& error) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(error.what(), "; see ckpt-inspect --help"));
    }
    for (const Command& command : commands_) {
      if (!command.app->parsed()) continue;
      Session session{PosixFileSystem(), out_, interrupts_};
      const ExitCode code = command.run(session);
      out_.Flush();
      return static_cast<int>(code);
    }
    throw Error(ErrorCode::kInternal, "no command ran");
  }

  // --help and --version.
  int Help(const CLI::Success& success) {
    std::ostringstream text;
    app_.exit(success, text, text);
    out_.Write(text.str());
    out_.Flush();
    return static_cast<int>(ExitCode::kOk);
  }

  int Report(const Error& error) {
    WriteStderr(StrCat("ckpt-inspect: error: ", Printable(error.what()), "\n"));
    try {
      Output out(1);
      if (context_.json) out.Write(Render(JsonError(context_.command, error)));
      out.Flush();
    } catch (const Error&) {
      // Standard output is what failed; standard error has said so.
    }
    return static_cast<int>(ExitCodeFor(error.code()));
  }

  // First: it blocks the signals for every thread.
  Interrupts interrupts_;
  CLI::App app_{kDescription};
  std::vector<Command> commands_;
  Output out_{1};
  Context context_;
};

}  // namespace
}  // namespace muonstore::tools

int main(int argc, char** argv) {
  // A closed pipe is an error of write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  muonstore::tools::ClaimStandardDescriptors();
  return muonstore::tools::Program().Run({argv + 1, argv + argc});
}
