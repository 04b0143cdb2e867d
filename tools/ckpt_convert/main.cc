// ckpt-convert: moves optimizer checkpoints between ZeRO stages, rank counts
// and formats. Parses the command line, runs the job and turns failures into
// messages and exit codes.
#include <algorithm>
#include <csignal>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "tools/ckpt_convert/job.h"
#include "tools/ckpt_convert/options.h"
#include "tools/ckpt_convert/report.h"
#include "tools/common/exit_code.h"
#include "tools/common/interrupts.h"
#include "tools/common/json.h"
#include "tools/common/output.h"

namespace muonstore::tools {
namespace {

constexpr const char* kDescription =
    "Moves an optimizer checkpoint of a Muon run to another ZeRO stage, "
    "number\n"
    "of ranks, offload mode or format: every element exactly, in bounded\n"
    "memory. What is not given is kept from the source. Nothing in SRC is\n"
    "changed or executed; DST/TAG appears whole or not at all.";

constexpr const char* kFooter =
    "Examples:\n"
    "  ckpt-convert runs/7 out --world-size 4         resume on 4 ranks\n"
    "  ckpt-convert runs/7 out --stage 3 --zero-init no\n"
    "                                                 resume under ZeRO-3\n"
    "  ckpt-convert runs/7 out --offload cpu          turn CPU offload on\n"
    "  ckpt-convert runs/7 out --like new_run         cut as that run saves\n"
    "  ckpt-convert runs/7 out --to native            one file that h5py "
    "reads\n"
    "  ckpt-convert runs/7 out --to safetensors --dtype bf16\n"
    "                                                 weights for Hugging "
    "Face\n"
    "  ckpt-convert runs/7 out --stage 2 --dry-run    what it would do\n";

class Program {
 public:
  Program() {
    app_.name("ckpt-convert");
    app_.footer(std::string(kFooter) + "\n" + kExitCodeHelp);
    app_.set_version_flag("--version", "ckpt-convert " MUONSTORE_VERSION);
    AddOptions(app_, options_);
  }

  int Run(std::vector<std::string> arguments) {
    options_.json = std::find(arguments.begin(), arguments.end(), "--json") !=
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
    try {
      // CLI11 takes them from the back.
      std::reverse(arguments.begin(), arguments.end());
      app_.parse(arguments);
    } catch (const CLI::Success& success) {
      return Help(success);
    } catch (const CLI::ParseError& error) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat(error.what(), "; see ckpt-convert --help"));
    }
    const Outcome outcome = RunJob(options_, PosixFileSystem(), interrupts_);
    out_.Write(options_.json ? Render(ReportJson(options_, outcome))
                             : ReportText(options_, outcome));
    out_.Flush();
    const bool would_refuse = options_.dry_run && !outcome.refused.empty();
    return static_cast<int>(would_refuse ? ExitCode::kUnreadable
                                         : ExitCode::kOk);
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
    WriteStderr(StrCat("ckpt-convert: error: ", Printable(error.what()), "\n"));
    try {
      Output out(1);
      if (options_.json) out.Write(Render(JsonError("convert", error)));
      out.Flush();
    } catch (const Error&) {
      // Standard output is what failed; standard error has said so.
    }
    return static_cast<int>(ExitCodeFor(error.code()));
  }

  // First: it blocks the signals for every thread.
  Interrupts interrupts_;
  CLI::App app_{kDescription};
  Options options_;
  Output out_{1};
};

}  // namespace
}  // namespace muonstore::tools

int main(int argc, char** argv) {
  // A closed pipe is an error of write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  muonstore::tools::ClaimStandardDescriptors();
  return muonstore::tools::Program().Run({argv + 1, argv + argc});
}
