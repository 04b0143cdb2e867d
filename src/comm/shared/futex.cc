#include "src/comm/shared/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace muonstore::comm {

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

// Without FUTEX_PRIVATE_FLAG: other processes wait and wake, too.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t value,
               std::chrono::nanoseconds timeout) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(timeout);
  timespec relative{};
  relative.tv_sec = seconds.count();
  relative.tv_nsec = (timeout - seconds).count();
  ::syscall(SYS_futex, &word, FUTEX_WAIT, value, &relative, nullptr, 0);
}

void FutexWakeAll(const std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace muonstore::comm
