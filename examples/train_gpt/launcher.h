// Starts the ranks of a run as processes of their own.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_LAUNCHER_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_LAUNCHER_H_

#include "examples/train_gpt/flags.h"

namespace train_gpt {

// Runs this program once a rank, with argv and the rank's number, and waits. A
// rank that fails ends the others. Returns the exit code of the first that
// failed, or 0.
int RunRanks(const Flags& flags, char** argv);

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_LAUNCHER_H_
