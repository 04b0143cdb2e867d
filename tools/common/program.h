// What main of every tool does around its own work.
//
// What: parses the command line, and turns whatever fails into a message on
//   standard error, an object on standard output where --json was given, and an
//   exit code.
// Ownership: make one Program in main, before any thread; it owns the signals.
// Threads: one thread.
// Failures: none leave Run().

#ifndef MUONSTORE_TOOLS_COMMON_PROGRAM_H_
#define MUONSTORE_TOOLS_COMMON_PROGRAM_H_

#include <functional>
#include <string>
#include <vector>

#include "muonstore/error.h"
#include "tools/common/exit_code.h"
#include "tools/common/interrupts.h"
#include "tools/common/output.h"

#include <CLI/CLI.hpp>

namespace muonstore::tools {

class Program {
 public:
  // `app` gets the name, the footer, the meaning of exit codes and --version.
  Program(CLI::App& app, const std::string& name, const std::string& footer);

  Interrupts& interrupts() { return interrupts_; }
  Output& out() { return out_; }
  // What JSON says of an error; empty until the command is known.
  void set_command(const std::string& command) { command_ = command; }

  // Runs `work` with the arguments; it calls Parse() first.
  int Run(std::vector<std::string> arguments,
          const std::function<ExitCode(std::vector<std::string>)>& work);
  // False: --help or --version was asked for and is printed.
  bool Parse(std::vector<std::string> arguments);

 private:
  int Report(const Error& error);

  // First: it blocks the signals for every thread.
  Interrupts interrupts_;
  CLI::App& app_;
  std::string name_;
  std::string command_;
  bool json_ = false;
  Output out_{1};
};

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_PROGRAM_H_
