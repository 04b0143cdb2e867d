// One line on the terminal that says how far a long read is.
//
// What: "reading  41 %  1.2 GiB of 3.0 GiB", rewritten in place on standard
//   error and wiped at the end. Nothing where standard error is no terminal.
// Ownership: a ProgressLine must outlive the callbacks that it gave.
// Threads: callbacks may come from any thread, one at a time.

#ifndef MUONSTORE_TOOLS_COMMON_PROGRESS_H_
#define MUONSTORE_TOOLS_COMMON_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace muonstore::tools {

class ProgressLine {
 public:
  explicit ProgressLine(bool enabled, std::string verb = "reading")
      : enabled_(enabled), verb_(std::move(verb)) {}
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  std::function<void(uint64_t, uint64_t)> callback();

  // The text for a position.
  std::string Text(uint64_t done_bytes, uint64_t total_bytes) const;

 private:
  void Show(uint64_t done_bytes, uint64_t total_bytes);

  bool enabled_;
  std::string verb_;
  std::string shown_;
};

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_COMMON_PROGRESS_H_
