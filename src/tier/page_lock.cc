#include "src/tier/page_lock.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/tier/memory_limits.h"

namespace muonstore::tier {
namespace {

constexpr const char* kByCuda = "cuda";
constexpr const char* kByOs = "mlock";

std::string ExplainLimit(int error, const LockLimit& limit) {
  if (limit.left_bytes() == 0 || error == ENOMEM || error == EPERM) {
    return StrCat("RLIMIT_MEMLOCK is ", limit.limit_bytes, " bytes, of which ",
                  limit.locked_bytes,
                  " were in use: raise it (ulimit -l, or LimitMEMLOCK= of a "
                  "service), or grant CAP_IPC_LOCK");
  }
  return StrCat("mlock failed: ", std::generic_category().message(error));
}

}  // namespace

PageLock::PageLock(std::span<std::byte> memory, Pinning asked,
                   const std::string& name,
                   std::shared_ptr<const CudaHost> cuda)
    : memory_(memory), cuda_(std::move(cuda)) {
  report_.asked = asked;
  report_.total_bytes = memory.size();
  if (asked == Pinning::kOff || memory.empty()) {
    return;
  }
  Lock();
  if (asked == Pinning::kRequired && !report_.shortfall.empty()) {
    Release();
    throw Error(
        ErrorCode::kResourceExhausted,
        StrCat("arena ", name, " must be page-locked: ", report_.shortfall,
               "; or ask for pinning as far as "
               "possible"),
        {.expected = StrCat(report_.total_bytes, " bytes locked"),
         .found = StrCat(report_.pinned_bytes, " bytes locked")});
  }
}

PageLock::~PageLock() { Release(); }

void PageLock::Lock() {
  if (!LockByCuda()) {
    LockByOs();
  }
}

bool PageLock::LockByCuda() {
  if (!cuda_->available()) {
    return false;
  }
  const std::string reason = cuda_->Register(memory_);
  if (!reason.empty()) {
    return false;
  }
  report_.method = kByCuda;
  report_.pinned_bytes = memory_.size();
  return true;
}

void PageLock::LockByOs() {
  const LockLimit limit = ReadLockLimit();
  if (::mlock(memory_.data(), memory_.size()) == 0) {
    report_.method = kByOs;
    report_.pinned_bytes = memory_.size();
    return;
  }
  const int error = errno;
  // Pages that were locked before the failure are not counted on.
  ::munlock(memory_.data(), memory_.size());
  report_.shortfall = ExplainLimit(error, limit);
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t part =
      std::min<uint64_t>(limit.left_bytes(), memory_.size()) / page * page;
  if (part > 0 && part < memory_.size() && ::mlock(memory_.data(), part) == 0) {
    report_.method = kByOs;
    report_.pinned_bytes = part;
  }
}

void PageLock::Release() {
  if (report_.method == kByCuda) {
    cuda_->Unregister(memory_);
  } else if (report_.method == kByOs) {
    ::munlock(memory_.data(), report_.pinned_bytes);
  }
}

}  // namespace muonstore::tier
