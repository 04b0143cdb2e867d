// Who holds leases on what, how often it was committed, and which snapshots
// live.
//
// Threads: any.
// Failures: Error(kInvalidArgument) names the tensor and who holds it.

#ifndef MUONSTORE_SRC_STORE_LEASE_TABLE_H_
#define MUONSTORE_SRC_STORE_LEASE_TABLE_H_

#include <cstdint>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "muonstore/parameter.h"
#include "muonstore/state_kind.h"
#include "src/store/kinds.h"

namespace muonstore {

class LeaseTable {
 public:
  // Keeps a reference to `parameters`.
  explicit LeaseTable(const std::vector<ParameterSpec>& parameters);

  // Each returns the tensor's generation.
  uint64_t AcquireRead(int32_t parameter, std::string_view kind);
  uint64_t AcquireWrite(int32_t parameter, std::string_view kind);
  void ReleaseRead(int32_t parameter, std::string_view kind);
  void ReleaseWrite(int32_t parameter, std::string_view kind, bool committed);

  uint64_t generation(int32_t parameter, std::string_view kind) const;
  // Whether a lease was committed since the last Advance.
  bool written_since_step(int32_t parameter, std::string_view kind) const;
  // Throws while any lease is held.
  void RequireNone(std::string_view what) const;
  // For writes without a lease, by the executor: no lease can be taken while
  // this lives. Throws while any is held, and while a snapshot keeps state from
  // being written.
  class Exclusive {
   public:
    Exclusive(LeaseTable& table, std::string_view what);
    ~Exclusive();
    Exclusive(const Exclusive&) = delete;
    Exclusive& operator=(const Exclusive&) = delete;

   private:
    LeaseTable& table_;
  };
  void Advance(int32_t parameter, std::string_view kind);

  // A snapshot of this step lives. Throws during a step.
  class SnapshotMark {
   public:
    // `keeps_writers_away`: neither steps nor write leases while this lives;
    // throws where a write lease is held.
    SnapshotMark(LeaseTable& table, int64_t step, bool keeps_writers_away);
    ~SnapshotMark();
    SnapshotMark(const SnapshotMark&) = delete;
    SnapshotMark& operator=(const SnapshotMark&) = delete;

   private:
    LeaseTable& table_;
    int64_t step_;
    bool keeps_writers_away_;
  };
  // Throws while any snapshot lives.
  void RequireNoSnapshot(std::string_view what) const;

 private:
  struct Entry {
    uint64_t generation = 0;
    int32_t readers = 0;
    bool writer = false;
    bool written_since_step = false;
  };

  Entry& at(int32_t parameter, std::string_view kind);
  const Entry& at(int32_t parameter, std::string_view kind) const;
  std::string NameOf(const Entry& entry) const;
  // These hold the mutex.
  void RequireNotExclusive(const Entry& entry) const;
  void RequireNoLease(std::string_view what) const;
  void RequireNoWriter() const;
  void RequireWritable(std::string_view what) const;

  const std::vector<ParameterSpec>& parameters_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  int64_t num_leases_ = 0;
  bool exclusive_ = false;
  std::multiset<int64_t> snapshot_steps_;
  int32_t num_keeping_writers_away_ = 0;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_LEASE_TABLE_H_
