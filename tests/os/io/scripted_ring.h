// A Ring that does what a test says: short, interrupted and failing requests.
#ifndef MUONSTORE_TESTS_OS_IO_SCRIPTED_RING_H_
#define MUONSTORE_TESTS_OS_IO_SCRIPTED_RING_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "src/os/io/ring.h"

namespace muonstore::os {

// What a test and the ring, which an engine owns, share.
class RingScript {
 public:
  // The result of a request; by default all of its bytes.
  std::function<int32_t(const RingEntry&)> result;
  // The errno values of the next calls; 0 where there are no more.
  std::deque<int> submits;
  std::deque<int> waits;
  std::deque<int> registers;

  // Requests are under way until Release() lets so many of them finish.
  void Hold() { holds_ = true; }
  void Release(size_t count);
  void WaitUntilSubmitted(size_t count);

  // Every request so far, in the order of submission.
  std::vector<RingEntry> requests() const;
  size_t max_under_way() const;

 private:
  friend class ScriptedRing;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RingEntry> requests_;
  std::deque<RingEntry> queued_;
  std::deque<RingEntry> under_way_;
  size_t max_under_way_ = 0;
  bool wakes_ = false;
  bool holds_ = false;
  size_t num_released_ = 0;
};

std::unique_ptr<Ring> MakeScriptedRing(std::shared_ptr<RingScript> script,
                                       int num_buffers = 4);

}  // namespace muonstore::os

#endif  // MUONSTORE_TESTS_OS_IO_SCRIPTED_RING_H_
