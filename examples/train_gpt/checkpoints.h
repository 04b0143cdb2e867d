// Saving a run while it goes on, and going on with it.
#ifndef MUONSTORE_EXAMPLES_TRAIN_GPT_CHECKPOINTS_H_
#define MUONSTORE_EXAMPLES_TRAIN_GPT_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "examples/train_gpt/flags.h"
#include "muonstore/executor.h"
#include "muonstore/save.h"
#include "muonstore/store.h"

namespace train_gpt {

// Throws where the run would replace checkpoints in --save-dir that it does not
// go on from.
void RefuseToReplace(const CheckpointFlags& flags);

// Collective. Fills the store from the newest good checkpoint; the number of
// steps that the run has done. Throws where that keeps momentum by another
// convention than the flags say.
int64_t ResumeRun(const Flags& flags, muonstore::StateStore& store);

// The checkpoints of a run: "step20", "step40", ...
class Checkpoints {
 public:
  // Collective. Nothing is saved without --save-every.
  Checkpoints(const Flags& flags, muonstore::StateStore& store,
              std::vector<muonstore::GroupHyperParameters> groups);

  // Collective, after each step. Rank 0 says which checkpoints are durable.
  void AfterStep(int64_t num_steps);
  // Waits for the last one.
  void Finish();

 private:
  void Say(bool wait);

  const Flags& flags_;
  std::vector<muonstore::GroupHyperParameters> groups_;
  std::optional<muonstore::Saver> saver_;
  // Not yet reported.
  std::optional<muonstore::SaveHandle> under_way_;
};

}  // namespace train_gpt

#endif  // MUONSTORE_EXAMPLES_TRAIN_GPT_CHECKPOINTS_H_
