// ckpt-convert: moves optimizer checkpoints between ZeRO stages, rank counts
// and formats.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/ckpt_convert/job.h"
#include "tools/ckpt_convert/loss_kinds.h"
#include "tools/ckpt_convert/options.h"
#include "tools/ckpt_convert/report.h"
#include "tools/common/interrupts.h"
#include "tools/common/json.h"
#include "tools/common/output.h"
#include "tools/common/program.h"
#include "tools/common/progress.h"

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

// A line on the terminal for what is being done; stops at a signal.
class TerminalWatch {
 public:
  explicit TerminalWatch(Interrupts& interrupts) : interrupts_(interrupts) {}

  JobWatch watch() {
    return {.progress = [this](const std::string& what, uint64_t done,
                               uint64_t total) { Show(what, done, total); },
            .check = [this] { interrupts_.ThrowIfInterrupted(); },
            .begin_writing = [this] { deferral_.emplace(interrupts_); },
            .before_commit = [this] { interrupts_.ThrowIfInterrupted(); }};
  }

 private:
  void Show(const std::string& what, uint64_t done, uint64_t total) {
    interrupts_.ThrowIfInterrupted();
    if (what != what_) {
      line_.emplace(StderrIsTerminal(), what);
      show_ = line_->callback();
      what_ = what;
    }
    if (show_) show_(done, total);
  }

  Interrupts& interrupts_;
  std::optional<Interrupts::Deferral> deferral_;
  std::string what_;
  std::optional<ProgressLine> line_;
  std::function<void(uint64_t, uint64_t)> show_;
};

ExitCode Convert(Program& program, const Options& options) {
  const Outcome outcome = [&] {
    TerminalWatch terminal(program.interrupts());
    Outcome done = RunJob(options, PosixFileSystem(), terminal.watch());
    // While the watch still holds signals back.
    if (!options.dry_run) program.interrupts().SetFinished();
    return done;
  }();
  program.out().Write(options.json ? Render(ReportJson(options, outcome))
                                   : ReportText(options, outcome));
  const bool would_refuse = options.dry_run && !outcome.refused.empty();
  return would_refuse ? ExitCode::kUnreadable : ExitCode::kOk;
}

int Run(const std::vector<std::string>& arguments) {
  CLI::App app{kDescription};
  Program program(app, "ckpt-convert", kFooter + LossKindHelp());
  program.set_command("convert");
  Options options;
  AddOptions(app, options);
  return program.Run(arguments, [&](std::vector<std::string> words) {
    return program.Parse(std::move(words)) ? Convert(program, options)
                                           : ExitCode::kOk;
  });
}

}  // namespace
}  // namespace muonstore::tools

int main(int argc, char** argv) {
  muonstore::tools::ClaimStandardDescriptors();
  return muonstore::tools::Run({argv + 1, argv + argc});
}
