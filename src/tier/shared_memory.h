// Owner of memory that processes share through a file descriptor, without a
// name anywhere: when the last one ends, it is gone.
//
// What: a memfd and its mapping. The one door to Boost.Interprocess.
// Ownership: owns descriptor and mapping.
// Threads: those of the memory.
// Failures: Error(kResourceExhausted) where the system gives none;
//   Error(kDataLoss) for a descriptor of another size than was said.
#ifndef MUONSTORE_SRC_TIER_SHARED_MEMORY_H_
#define MUONSTORE_SRC_TIER_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "src/os/file_descriptor.h"

namespace boost::interprocess {
class mapped_region;
}

namespace muonstore::tier {

enum class Access {
  kRead,
  kWrite,
};

class SharedMemory {
 public:
  // Zero at first. With `peers` kRead nobody else can map it writable.
  static SharedMemory Create(const std::string& name, uint64_t size_bytes,
                             Access peers);
  // Memory of another process. The mapping holds it: the descriptor is closed.
  static SharedMemory Adopt(os::FileDescriptor fd, uint64_t size_bytes,
                            Access access);

  SharedMemory();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::span<std::byte> memory() const;
  // -1 for adopted memory.
  int fd() const { return fd_.get(); }

 private:
  void Map(int fd, uint64_t size_bytes, Access access);

  os::FileDescriptor fd_;
  std::unique_ptr<boost::interprocess::mapped_region> region_;
};

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_SHARED_MEMORY_H_
