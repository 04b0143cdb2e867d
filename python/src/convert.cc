// ckpt-convert, by its own command line.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "python/src/bindings.h"
#include "python/src/interruptible.h"
#include "python/src/words.h"
#include "tools/ckpt_convert/job.h"
#include "tools/ckpt_convert/options.h"
#include "tools/ckpt_convert/report.h"

#include <CLI/CLI.hpp>

namespace muonstore::python {
namespace {

namespace nb = nanobind;

// `words` are those of a command line, without the program's name.
void Parse(std::vector<std::string> words, tools::Options& options) {
  CLI::App app;
  tools::AddOptions(app, options);
  // CLI11 takes them from the back.
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

// Paths are among the words, in whatever encoding.
std::string Convert(const std::vector<std::filesystem::path>& words,
                    const nb::object& progress) {
  tools::Options options;
  Parse({words.begin(), words.end()}, options);
  tools::Outcome outcome;
  RunInterruptible(progress, [&](const Watch& watch) {
    outcome = tools::RunJob(options, PosixFileSystem(),
                            {.progress = watch.progress,
                             .check = watch.check,
                             .begin_writing = [] {},
                             .before_commit = watch.last_call});
  });
  for (std::string& note : outcome.plan.notes) note = InPythonsWords(note);
  return tools::Render(tools::ReportJson(options, outcome));
}

}  // namespace

void BindConvert(nb::module_& module) {
  module.def("convert_json", &Convert, nb::arg("words"),
             nb::arg("progress").none());
}

}  // namespace muonstore::python
