// Slots that only snapshots need, made when the first one is taken.
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "src/base/log.h"
#include "src/base/str.h"
#include "src/store/agreement.h"
#include "src/store/store_impl.h"

namespace muonstore {
namespace {

// Nothing where there is no room: steps wait for saves then.
std::unique_ptr<Arena> MakeArena(const ArenaPlan& plan, uint64_t& left_bytes) {
  std::unique_ptr<Arena> arena;
  std::optional<Error> error;
  // What was made is not taken from what the system calls available before it
  // is written.
  const uint64_t bytes = plan.tier->ArenaBytes(plan.arena);
  if (bytes > left_bytes) {
    error = Error(ErrorCode::kResourceExhausted,
                  StrCat("it takes ", bytes, " bytes of ", left_bytes));
  } else {
    error = Caught([&] { arena = plan.tier->CreateArena(plan.arena); });
  }
  if (error.has_value()) {
    Log(LogLevel::kWarning,
        StrCat("no room for ", plan.arena.name,
               ": steps will wait for asynchronous saves. ", error->what()));
    return nullptr;
  }
  left_bytes -= bytes;
  return arena;
}

// The system finds memory when it is first written.
void Touch(Arena& arena, const ArenaPlan& plan) {
  constexpr size_t kPageBytes = 4096;
  for (size_t i = 0; i < plan.flat_groups.size(); ++i) {
    const auto memory = arena.memory(static_cast<int32_t>(i), 0);
    for (size_t at = 0; at < memory.size(); at += kPageBytes) {
      memory[at] = std::byte{0};
    }
  }
}

}  // namespace

void StateStore::Impl::MakeSpares() {
  if (has_spares_) return;
  has_spares_ = true;
  const std::vector<ArenaPlan> plans =
      PlanSpares(PlanOwnArenas(), StepOrder(parameters, partitioning),
                 options.max_snapshot_bytes);
  std::vector<std::unique_ptr<Arena>> arenas;
  std::vector<int64_t> is_made;
  std::map<Tier*, uint64_t> left_bytes;
  for (const ArenaPlan& plan : plans) {
    const auto [left, unused] =
        left_bytes.emplace(plan.tier.get(), plan.tier->available_bytes());
    arenas.push_back(MakeArena(plan, left->second));
    is_made.push_back(arenas.back() != nullptr ? 1 : 0);
  }
  // Arenas are published by all ranks together.
  communicator->AllReduce(is_made, ReduceOp::kMin);
  for (size_t i = 0; i < plans.size(); ++i) {
    if (is_made[i] == 0) continue;
    if (options.reserve_snapshot_memory) Touch(*arenas[i], plans[i]);
    communicator->Publish(*arenas[i]);
    segments->AddSpares(plans[i], std::move(arenas[i]));
  }
}

}  // namespace muonstore
