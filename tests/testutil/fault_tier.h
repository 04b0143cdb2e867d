// A tier that is not memory, and does what a test wants of it: fails, delays
// and reorders what it is asked, and counts it.
//
// What: blocks are kept in memory that only Read and Write reach. What is
//   started is done at the latest when somebody waits for it; with `reorder` it
//   is done then and in a random order, so that a caller who looks at a read or
//   changes a write before Wait sees it. Two operations on the same bytes under
//   way at a time, one of them a write, are noted as a race.
// Ownership: arenas share the tier's script and outlive the tier if need be.
// Threads: any.

#ifndef MUONSTORE_TESTS_TESTUTIL_FAULT_TIER_H_
#define MUONSTORE_TESTS_TESTUTIL_FAULT_TIER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "muonstore/tier.h"

namespace muonstore::testutil {

struct TierOperation {
  bool is_write = false;
  std::string arena;
  BlockRange range;
  uint64_t size_bytes = 0;
  int64_t number = 0;  // Of all operations of the tier, from 0.
};

struct TierCounts {
  int64_t reads = 0;
  int64_t writes = 0;
  // Operations that overlapped another one under way, one of them a write.
  int64_t races = 0;
};

struct FaultTierOptions {
  bool reorder = false;
  uint64_t seed = 0;
  uint64_t available_bytes = uint64_t{1} << 40;
};

class FaultTier : public Tier {
 public:
  explicit FaultTier(const FaultTierOptions& options = {});

  std::string_view name() const override { return "fault"; }
  bool addressable() const override { return false; }
  std::unique_ptr<Arena> CreateArena(const ArenaOptions& options) override;
  uint64_t ArenaBytes(const ArenaOptions& options) const override;
  uint64_t available_bytes() const override { return available_bytes_; }

  // Wait of each operation for which it returns true throws
  // Error(kUnavailable) with "injected"; a failed write leaves half of its
  // bytes written. Null: none.
  void FailWhere(std::function<bool(const TierOperation&)> fails);
  // Called when an operation is waited for, before it is done, without locks: a
  // test may block here.
  void OnOperation(std::function<void(const TierOperation&)> callback);

  // CreateArena throws Error(kResourceExhausted).
  void RefuseArenas(bool refuse) { refuses_arenas_ = refuse; }
  void set_available_bytes(uint64_t bytes) { available_bytes_ = bytes; }

  TierCounts counts() const;

  class Script;  // fault_tier.cc

 private:
  std::shared_ptr<Script> script_;
  uint64_t available_bytes_;
  bool refuses_arenas_ = false;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_FAULT_TIER_H_
