// An arena in a scratch file.
//
// What: of a range, whole blocks in memory that lies alike go to the file
//   directly, the rest through StagedTransfers.
#ifndef MUONSTORE_SRC_TIER_NVME_ARENA_H_
#define MUONSTORE_SRC_TIER_NVME_ARENA_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "muonstore/tier.h"
#include "src/tier/arena_layout.h"
#include "src/tier/staged_transfers.h"

namespace muonstore::tier {

class NvmeArena final : public Arena {
 public:
  // `file` is null for an arena of no bytes.
  NvmeArena(ArenaLayout layout, std::unique_ptr<ScratchFile> file,
            std::shared_ptr<StagedTransfers> staged, Pinning pinning);

  std::string_view name() const override { return layout_.name(); }
  std::span<std::byte> memory(int32_t block, int32_t slot) override;
  std::span<std::byte> all_memory() override { return {}; }
  PendingPtr Read(const BlockRange& from, std::span<std::byte> out) override;
  PendingPtr Write(const BlockRange& to,
                   std::span<const std::byte> data) override;
  const PinReport& pin_report() const override { return report_; }

 private:
  PendingPtr Start(const BlockRange& range, const StagedJob& whole);
  PendingPtr StartDirect(const StagedJob& part);

  ArenaLayout layout_;
  std::unique_ptr<ScratchFile> file_;
  std::shared_ptr<StagedTransfers> staged_;
  PinReport report_;
};

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_NVME_ARENA_H_
