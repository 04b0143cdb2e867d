// Holds memory page-locked, as far as it can be, and says how far.
//
// Ownership: unlocks when destroyed, which must be before the memory goes.
// Threads: one.
// Failures: Error(kResourceExhausted) with Pinning::kRequired alone.
#ifndef MUONSTORE_SRC_TIER_PAGE_LOCK_H_
#define MUONSTORE_SRC_TIER_PAGE_LOCK_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "muonstore/tier.h"
#include "src/tier/cuda_host.h"

namespace muonstore::tier {

class PageLock {
 public:
  // `memory` starts at a page. `name` is the arena's, for messages. `cuda` may
  // be null with Pinning::kOff.
  PageLock(std::span<std::byte> memory, Pinning asked, const std::string& name,
           std::shared_ptr<const CudaHost> cuda);
  PageLock(const PageLock&) = delete;
  PageLock& operator=(const PageLock&) = delete;
  ~PageLock();

  const PinReport& report() const { return report_; }

 private:
  void Lock();
  bool LockByCuda();
  void LockByOs();
  void Release();

  std::span<std::byte> memory_;
  std::shared_ptr<const CudaHost> cuda_;
  PinReport report_;
};

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_PAGE_LOCK_H_
