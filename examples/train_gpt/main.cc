// Trains a small GPT with Muon and Adam under ZeRO: see README.md.
#include <csignal>
#include <cstdio>
#include <exception>

#include <ATen/Parallel.h>

#include "examples/train_gpt/baseline.h"
#include "examples/train_gpt/checkpoints.h"
#include "examples/train_gpt/flags.h"
#include "examples/train_gpt/launcher.h"
#include "examples/train_gpt/rank.h"

int main(int argc, char** argv) {
  // A file limit is an error of the write, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  int exit_code = 0;
  const auto flags = train_gpt::ParseFlags(argc, argv, exit_code);
  if (!flags) return exit_code;
  try {
    if (!flags->baseline && !flags->rank) {
      train_gpt::RefuseToReplace(flags->checkpoints);
      return train_gpt::RunRanks(*flags, argv);
    }
    // A fixed number of threads: sums depend on it.
    at::set_num_threads(flags->num_threads);
    if (flags->baseline) {
      train_gpt::RunBaseline(*flags);
    } else {
      train_gpt::RunRank(*flags);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_gpt: %s\n", error.what());
    return 1;
  }
  return 0;
}
