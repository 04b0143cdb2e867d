#include "muonstore/load.h"

#include <utility>

#include "src/base/str.h"
#include "src/checkpoint/load_plan.h"
#include "src/checkpoint/piece_reader.h"
#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

// Of what the ranks must have in common: the checkpoint and what is read of it.
int64_t DigestOf(const Checkpoint& checkpoint, const LoadPlan& plan) {
  Digest digest;
  digest.Add(checkpoint.info().tag).Add(checkpoint.info().step.value_or(-1));
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    digest.Add(tensor.key.ToString()).Add(tensor.shape.ToString());
    digest.Add(DTypeName(tensor.dtype));
  }
  for (const LoadItem& item : plan.items) {
    digest.Add(static_cast<int64_t>(item.tensor.has_value()));
    digest.Add(item.divisor);
  }
  return digest.value();
}

void Fill(StateStore& store, const Checkpoint& checkpoint,
          const LoadPlan& plan) {
  PieceReader reader(checkpoint);
  for (const LoadItem& item : plan.items) {
    const std::string& name =
        store.parameters()[static_cast<size_t>(item.parameter)].name;
    WriteLease lease = store.Write(name, item.kind);
    for (const StatePiece<std::byte>& piece : lease.pieces()) {
      reader.Read(item, lease.dtype(), piece);
    }
    lease.Commit();
  }
}

}  // namespace

LoadReport LoadCheckpoint(StateStore& store, const Checkpoint& checkpoint,
                          const LoadOptions& options) {
  LoadPlan plan;
  const auto refused = Caught([&] {
    store.impl().RequireUsable();
    store.impl().leases.RequireNone("a load");
    plan = PlanLoad(store, checkpoint, options);
  });
  RequireAgreement(store.communicator(), "loading a checkpoint", refused,
                   DigestOf(checkpoint, plan));
  const auto failed = Caught([&] { Fill(store, checkpoint, plan); });
  try {
    RequireAgreement(store.communicator(), "reading the checkpoint", failed, 0);
  } catch (const Error& error) {
    store.Poison(StrCat("a load was cut short: ", error.what()));
    throw;
  }
  store.record() = std::move(plan.record);
  return std::move(plan.report);
}

}  // namespace muonstore
