// A device that does its work late and out of order, as an accelerator may.
//
// What: work of one buffer runs in order; of all buffers that have work, a
//   seeded choice decides which goes next, and nothing runs before somebody
//   waits. Its memory is its own: a copy sees the bytes that the host memory
//   has when it runs, so that a source which died or changed too early shows.

#ifndef MUONSTORE_TESTS_EXECUTOR_DELAYING_DEVICE_H_
#define MUONSTORE_TESTS_EXECUTOR_DELAYING_DEVICE_H_

#include <cstdint>
#include <memory>

#include "muonstore/device.h"

namespace muonstore::testutil {

struct DelayingDeviceOptions {
  uint64_t seed = 1;
  // The n-th piece of work (from 1) fails; 0: none does.
  int64_t fail_at = 0;
};

struct DelayingDeviceCounts {
  int64_t copies_in = 0;
  int64_t copies_out = 0;
  int64_t orthogonalized = 0;
  // Pieces of work that waited at the same time, at most.
  int64_t peak_waiting = 0;
};

class DelayingDevice : public Device {
 public:
  // Counts of what was done so far; what waits is not done.
  virtual const DelayingDeviceCounts& counts() const = 0;
  virtual int64_t num_waiting() const = 0;
};

std::shared_ptr<DelayingDevice> MakeDelayingDevice(
    const NewtonSchulzOptions& newton_schulz,
    const DelayingDeviceOptions& options = {});

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_EXECUTOR_DELAYING_DEVICE_H_
