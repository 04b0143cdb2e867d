#include "muonstore/load.h"

#include <utility>

#include "src/base/str.h"
#include "src/checkpoint/fill.h"
#include "src/checkpoint/load_steps.h"
#include "src/store/agreement.h"

namespace muonstore {

LoadReport LoadCheckpoint(StateStore& store, const Checkpoint& checkpoint,
                          const LoadOptions& options) {
  Communicator& ranks = store.communicator();
  LoadPlan plan;
  const auto refused =
      Caught([&] { plan = PlanLoadOf(store, checkpoint, options); });
  RequireAgreement(ranks, "loading a checkpoint", refused,
                   DigestOf(checkpoint, plan));
  RequireSameContent(ranks, checkpoint, plan);
  const auto failed = FillStore(store, checkpoint, plan);
  try {
    RequireAgreement(ranks, "reading the checkpoint", failed, 0);
  } catch (const Error& error) {
    store.Poison(StrCat("a load was cut short: ", error.what()));
    throw;
  }
  store.record() = std::move(plan.record);
  return std::move(plan.report);
}

}  // namespace muonstore
