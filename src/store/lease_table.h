// Who holds leases on what, and how often it was committed.
//
// Threads: any.
// Failures: Error(kInvalidArgument) names the tensor and who holds it.

#ifndef MUONSTORE_SRC_STORE_LEASE_TABLE_H_
#define MUONSTORE_SRC_STORE_LEASE_TABLE_H_

#include <cstdint>
#include <mutex>
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
  // Throws while any lease is held.
  void RequireNone(std::string_view what) const;
  // For writes without a lease, by the executor: no lease can be taken while
  // this lives. Throws while any is held.
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

 private:
  struct Entry {
    uint64_t generation = 0;
    int32_t readers = 0;
    bool writer = false;
  };

  Entry& at(int32_t parameter, std::string_view kind);
  const Entry& at(int32_t parameter, std::string_view kind) const;
  std::string NameOf(const Entry& entry) const;
  // These hold the mutex.
  void RequireNotExclusive(const Entry& entry) const;
  void RequireNoLease(std::string_view what) const;

  const std::vector<ParameterSpec>& parameters_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  int64_t num_leases_ = 0;
  bool exclusive_ = false;
};

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_LEASE_TABLE_H_
