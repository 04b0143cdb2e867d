// What orthogonalizes matrices: this host's processor, or an accelerator.
//
// What: the executor keeps two batches of matrices in flight through this seam:
//   copy in, orthogonalize in place, copy out. A device may do all of it
//   asynchronously and in any order that respects, for each buffer, the order
//   in which its work was started.
// Ownership: buffers belong to the caller and to the device that made them. The
//   host memory of a copy stays alive and unchanged until its handle's Wait has
//   returned or Drain has.
// Threads: one thread at a time.
// Failures: Error(kResourceExhausted) for device memory, Error(kUnavailable)
//   for a device that fails; from the call, from Wait or from Drain.

#ifndef MUONSTORE_DEVICE_H_
#define MUONSTORE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "muonstore/file_system.h"
#include "muonstore/newton_schulz.h"
#include "muonstore/pending.h"

namespace muonstore {

class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  DeviceBuffer() = default;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  virtual uint64_t size_bytes() const = 0;
};

// `batch` dense f32 matrices, one behind the other from the buffer's start.
struct DeviceMatrices {
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t cols = 0;
};

// Since the device was made.
struct DeviceUsage {
  uint64_t in_bytes = 0;  // Copied from host memory.
  uint64_t out_bytes = 0;
  uint64_t peak_bytes = 0;  // Device memory, at most.
};

class Device {
 public:
  virtual ~Device() = default;
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // "host", "cuda:0": the kind and, behind a colon, which one. Ranks work on
  // devices of one kind.
  virtual std::string_view name() const = 0;
  // True: matrices are worked on where they lie, by OrthogonalizeInPlace, and
  // the calls below it are not used.
  virtual bool works_in_host_memory() const = 0;
  virtual void OrthogonalizeInPlace(std::span<const OrthogonalizeJob> jobs) = 0;

  // Device memory that buffers and work may take together, where the user set
  // a limit; 0: none is set.
  virtual uint64_t max_memory_bytes() const { return 0; }
  // Device memory that the work on one matrix takes beside its buffer. The work
  // on a batch gets by with that of its largest matrix.
  virtual uint64_t WorkspaceBytes(int64_t /*rows*/, int64_t /*cols*/) const {
    return 0;
  }
  virtual DeviceUsage usage() const { return {}; }
  // Prepares host memory that many copies will use, for as long as the result
  // lives; null where that is not needed or not possible: copies are slower.
  virtual std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> /*memory*/) {
    return nullptr;
  }

  virtual std::unique_ptr<DeviceBuffer> Allocate(uint64_t size_bytes) = 0;
  virtual PendingPtr CopyIn(DeviceBuffer& to,
                            std::span<const std::byte> from) = 0;
  virtual PendingPtr Orthogonalize(DeviceBuffer& buffer,
                                   const DeviceMatrices& matrices) = 0;
  virtual PendingPtr CopyOut(std::span<std::byte> to,
                             const DeviceBuffer& from) = 0;
  // Returns when everything that was started is done.
  virtual void Drain() = 0;
};

// Works in host memory, on `pool`, which must outlive it.
std::unique_ptr<Device> MakeHostDevice(const NewtonSchulzOptions& options,
                                       ThreadPool& pool);

}  // namespace muonstore

#endif  // MUONSTORE_DEVICE_H_
