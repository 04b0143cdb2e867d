#include "tools/common/program.h"

#include <algorithm>
#include <csignal>
#include <new>
#include <sstream>
#include <utility>

#include "src/base/str.h"
#include "tools/common/json.h"

namespace muonstore::tools {

namespace {

// For all options: an empty value is an unset variable of a script, and what
// stands for a missing value is not what was meant.
void RefuseEmptyValues(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0) continue;
    option->check([](const std::string& value) {
      return std::string(value.empty() ? "the value is empty" : "");
    });
  }
  for (CLI::App* command : app.get_subcommands({})) RefuseEmptyValues(*command);
}

}  // namespace

Program::Program(CLI::App& app, const std::string& name,
                 const std::string& footer)
    : app_(app), name_(name) {
  // A closed pipe is an error of write, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  // So is a file beyond the limit of `ulimit -f`.
  std::signal(SIGXFSZ, SIG_IGN);
  app_.name(name_);
  app_.footer(footer + "\n" + kExitCodeHelp);
  app_.set_version_flag("--version", name_ + " " MUONSTORE_VERSION);
}

int Program::Run(
    std::vector<std::string> arguments,
    const std::function<ExitCode(std::vector<std::string>)>& work) {
  json_ = std::find(arguments.begin(), arguments.end(), "--json") !=
          arguments.end();
  try {
    const ExitCode code = work(std::move(arguments));
    out_.Flush();
    return static_cast<int>(code);
  } catch (const Interrupted& interrupted) {
    WriteStderr(name_ + ": interrupted; what was not complete is removed\n");
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

bool Program::Parse(std::vector<std::string> arguments) {
  RefuseEmptyValues(app_);
  try {
    // CLI11 takes them from the back.
    std::reverse(arguments.begin(), arguments.end());
    app_.parse(arguments);
    return true;
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app_.exit(success, text, text);
    out_.Write(text.str());
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat(error.what(), "; see ", name_, " --help"));
  }
}

int Program::Report(const Error& error) {
  WriteStderr(StrCat(name_, ": error: ", Printable(error.what()), "\n"));
  try {
    Output out(1);
    if (json_) out.Write(Render(JsonError(command_, error)));
    out.Flush();
  } catch (const Error&) {
    // Standard output is what failed; standard error has said so.
  }
  return static_cast<int>(ExitCodeFor(error.code()));
}

}  // namespace muonstore::tools
