#include "tests/testutil/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <utility>

namespace muonstore::testutil {
namespace {

// One end of a pipe.
class End {
 public:
  End() = default;
  explicit End(int fd) : fd_(fd) {}
  ~End() { Close(); }
  End(End&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  End& operator=(End&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  int fd() const { return fd_; }
  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  End read;
  End write;
};

Pipe MakePipe() {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) {
    throw std::runtime_error("pipe2 failed");
  }
  return {End(fds[0]), End(fds[1])};
}

// In the child, between fork and exec: only calls that are safe there.
[[noreturn]] void Exec(char* const* argv, int out, int err) {
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGINT, SIG_DFL);
  ::execvp(argv[0], argv);
  ::_exit(127);
}

// Appends what is there; false at the end of the stream.
bool ReadSome(const End& end, size_t limit, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t n =
      ::read(end.fd(), buffer.data(), std::min(limit, buffer.size()));
  if (n > 0) text.append(buffer.data(), static_cast<size_t>(n));
  return n > 0 || (n < 0 && errno == EINTR);
}

void Drain(Pipe& out, Pipe& err, ProcessResult& result) {
  std::array<pollfd, 2> fds = {
      {{out.read.fd(), POLLIN, 0}, {err.read.fd(), POLLIN, 0}}};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[0].revents != 0 && !ReadSome(out.read, 4096, result.out)) {
      fds[0].fd = -1;
    }
    if (fds[1].revents != 0 && !ReadSome(err.read, 4096, result.err)) {
      fds[1].fd = -1;
    }
  }
}

}  // namespace

ProcessResult RunProcess(const std::vector<std::string>& argv,
                         const ProcessOptions& options) {
  std::vector<std::string> words = argv;
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  if (options.on_first_output) ::fcntl(out.write.fd(), F_SETPIPE_SZ, 4096);
  if (options.close_stdout) out.read.Close();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) Exec(pointers.data(), out.write.fd(), err.write.fd());
  out.write.Close();
  err.write.Close();
  ProcessResult result;
  if (options.on_first_output && ReadSome(out.read, 1, result.out)) {
    options.on_first_output(pid);
  }
  Drain(out, err, result);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace muonstore::testutil
