#include "examples/train_gpt/launcher.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <system_error>
#include <vector>

namespace train_gpt {
namespace {

pid_t Start(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr,
                                pointers.data(), environ);
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), "start a rank");
  }
  return pid;
}

void Kill(const std::vector<pid_t>& processes) {
  for (const pid_t pid : processes) kill(pid, SIGKILL);
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Ends with the processes; empties the list.
int WaitForAll(std::vector<pid_t>& processes) {
  int first_failure = 0;
  while (!processes.empty()) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) throw std::system_error(errno, std::generic_category());
    std::erase(processes, pid);
    if (first_failure == 0 && ExitCode(status) != 0) {
      first_failure = ExitCode(status);
      std::fprintf(stderr, "train_gpt: a rank ended with code %d\n",
                   first_failure);
      Kill(processes);
    }
  }
  return first_failure;
}

}  // namespace

int RunRanks(const Flags& flags, char** argv) {
  std::vector<std::string> arguments;
  for (char** argument = argv; *argument != nullptr; ++argument) {
    arguments.emplace_back(*argument);
  }
  arguments.push_back("--launcher-pid=" + std::to_string(getpid()));
  arguments.push_back("--rendezvous=train_gpt." + std::to_string(getpid()));
  arguments.emplace_back();
  std::vector<pid_t> processes;
  try {
    for (int32_t rank = 0; rank < flags.num_ranks; ++rank) {
      arguments.back() = "--rank=" + std::to_string(rank);
      processes.push_back(Start(arguments));
    }
    return WaitForAll(processes);
  } catch (const std::system_error&) {
    Kill(processes);
    throw;
  }
}

}  // namespace train_gpt
