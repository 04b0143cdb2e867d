// Sleeping on a word of shared memory, across processes.
#ifndef MUONSTORE_SRC_COMM_SHARED_FUTEX_H_
#define MUONSTORE_SRC_COMM_SHARED_FUTEX_H_

#include <atomic>
#include <chrono>
#include <cstdint>

namespace muonstore::comm {

// Returns when woken, when `word` is not `value` (any more), after `timeout`,
// or for no reason.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t value,
               std::chrono::nanoseconds timeout);
void FutexWakeAll(const std::atomic<uint32_t>& word);

}  // namespace muonstore::comm

#endif  // MUONSTORE_SRC_COMM_SHARED_FUTEX_H_
