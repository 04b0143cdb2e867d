// Standard output of a tool.
//
// What: text is collected and written by Flush(). When the reader has closed
//   the pipe, writing ends silently: a cut listing is what `| head` wants.
// Ownership: owns the text; the descriptor belongs to the process.
// Threads: one thread.
// Failures: Error(kUnavailable) where standard output cannot be written (disk
//   full), but never for a closed pipe. SIGPIPE must be ignored.

#ifndef MUONSTORE_TOOLS_COMMON_OUTPUT_H_
#define MUONSTORE_TOOLS_COMMON_OUTPUT_H_

#include <string>
#include <string_view>

namespace muonstore::tools {

class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  ~Output() = default;
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void Write(std::string_view text) { text_ += text; }
  // Writes what was collected.
  void Flush();

 private:
  int fd_;
  std::string text_;
  bool closed_ = false;
};

// Makes sure that descriptors 0 to 2 are taken, so that no file that is opened
// later becomes "standard output". Writing to one that was closed fails.
void ClaimStandardDescriptors();

// True where standard error is a terminal.
bool StderrIsTerminal();

// Writes to standard error; failures are ignored.
void WriteStderr(std::string_view text);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_OUTPUT_H_
