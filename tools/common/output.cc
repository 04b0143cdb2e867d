#include "tools/common/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "muonstore/error.h"

namespace muonstore::tools {
namespace {

// Writes all of `text`; returns 0 or the errno of the failure.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return 0;
}

}  // namespace

void Output::Flush() {
  const std::string text = std::move(text_);
  text_.clear();
  if (closed_) return;
  const int error = WriteAll(fd_, text);
  if (error == EPIPE) {
    closed_ = true;
  } else if (error != 0) {
    throw Error(ErrorCode::kUnavailable,
                "writing failed: " + std::generic_category().message(error),
                {.file = "standard output"});
  }
}

void ClaimStandardDescriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free descriptor is this one.
    (void)::open("/dev/null", O_RDONLY);
  }
}

bool StderrIsTerminal() { return ::isatty(STDERR_FILENO) == 1; }

void WriteStderr(std::string_view text) { (void)WriteAll(STDERR_FILENO, text); }

}  // namespace muonstore::tools
