// Owners of what CUDA hands out.
//
// Ownership: each owns one thing and gives it back when it goes; destructors
//   swallow the status, since nothing can be done with it.
// Threads: those of the device. Failures: constructors throw as Api::Check.

#ifndef MUONSTORE_SRC_CUDA_PLUGIN_OWNERS_H_
#define MUONSTORE_SRC_CUDA_PLUGIN_OWNERS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/cuda/plugin/api.h"

namespace muonstore::cuda {

// Base of all owners: neither copied nor moved.
class Owner {
 public:
  explicit Owner(const Api& api) : api_(api) {}
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

 protected:
  ~Owner() = default;
  const Api& api_;
};

class Stream : public Owner {
 public:
  explicit Stream(const Api& api);
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();
  Handle handle() const { return handle_; }
  void Synchronize() const;

 private:
  Handle handle_ = nullptr;
};

// A point of a stream that the host sleeps for, without spinning.
class Event : public Owner {
 public:
  explicit Event(const Api& api);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();
  Handle handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

// What a device's memory is counted against.
struct MemoryBudget {
  uint64_t limit_bytes = 0;
  // A limit that the user set; else one matrix may go beyond it.
  bool is_hard = false;
  uint64_t used_bytes = 0;
  uint64_t peak_bytes = 0;

  uint64_t left_bytes() const {
    return limit_bytes - (used_bytes < limit_bytes ? used_bytes : limit_bytes);
  }
};

class DeviceMemory : public Owner {
 public:
  DeviceMemory(const Api& api, MemoryBudget& budget, uint64_t size_bytes);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  MemoryBudget& budget_;
  void* data_ = nullptr;
  uint64_t size_bytes_;
};

// Page-locked memory of the host.
class PinnedMemory : public Owner {
 public:
  PinnedMemory(const Api& api, uint64_t size_bytes);
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  ~PinnedMemory();
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(data_), size_bytes_};
  }

 private:
  void* data_ = nullptr;
  size_t size_bytes_;
};

class Blas : public Owner {
 public:
  // Works on `stream`, in `workspace`; both outlive it.
  Blas(const Api& api, const Stream& stream, const DeviceMemory& workspace);
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;
  ~Blas();
  Handle handle() const { return handle_; }

 private:
  Handle handle_ = nullptr;
};

}  // namespace muonstore::cuda

#endif  // MUONSTORE_SRC_CUDA_PLUGIN_OWNERS_H_
