// Runs a program and captures what it says.
//
// What: fork and exec with pipes for stdout and stderr; stdin is /dev/null. The
//   child has default signal dispositions.
// Ownership: plain values. The child is always waited for.
// Threads: safe from one thread at a time.
// Failures: std::runtime_error where the OS refuses a pipe or a process.

#ifndef MUONSTORE_TESTS_TESTUTIL_PROCESS_H_
#define MUONSTORE_TESTS_TESTUTIL_PROCESS_H_

#include <functional>
#include <string>
#include <vector>

namespace muonstore::testutil {

struct ProcessResult {
  int exit_code = -1;  // -1: ended by `signal`.
  int signal = 0;
  std::string out;
  std::string err;
};

struct ProcessOptions {
  // Nobody reads stdout: the read end is closed before the program starts.
  bool close_stdout = false;
  // Called with the child's id after the first byte of its stdout, whose pipe
  // holds only 4 KiB: a program with more to say is still there.
  std::function<void(int pid)> on_first_output;
};

// `argv[0]` is looked up in PATH where it has no slash.
ProcessResult RunProcess(const std::vector<std::string>& argv,
                         const ProcessOptions& options = {});

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_PROCESS_H_
