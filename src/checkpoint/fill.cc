#include "src/checkpoint/fill.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "src/checkpoint/piece_reader.h"
#include "src/store/agreement.h"
#include "src/store/lease_state.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

// Enough for a disk to have requests to choose from; each takes a copy of its
// tensor's part of the rank.
constexpr size_t kMaxReaders = 4;

void FillItem(StateStore::Impl& store, const LoadItem& item,
              PieceReader& reader) {
  const std::string_view kind = store.RequireKind(item.parameter, item.kind);
  const DType dtype = store.dtype(item.parameter, kind);
  Overwrite(store, item.parameter, kind,
            [&](std::span<const StatePiece<std::byte>> pieces) {
              for (const StatePiece<std::byte>& piece : pieces) {
                reader.Read(item, dtype, piece);
              }
            });
}

}  // namespace

std::optional<Error> FillStore(StateStore& store, const Checkpoint& checkpoint,
                               const LoadPlan& plan) {
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  std::vector<std::optional<Error>> errors(plan.items.size());
  const auto work = [&] {
    PieceReader reader(checkpoint);
    for (size_t i = next++; i < plan.items.size() && !failed; i = next++) {
      errors[i] =
          Caught([&] { FillItem(store.impl(), plan.items[i], reader); });
      if (errors[i]) failed = true;
    }
  };
  {
    std::vector<std::jthread> readers;
    for (size_t i = 1; i < std::min(kMaxReaders, plan.items.size()); ++i) {
      readers.emplace_back(work);
    }
    work();
  }
  const auto first =
      std::find_if(errors.begin(), errors.end(),
                   [](const auto& error) { return error.has_value(); });
  return first == errors.end() ? std::nullopt : *first;
}

}  // namespace muonstore
