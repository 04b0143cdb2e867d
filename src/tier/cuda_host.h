// Page-locking by the CUDA runtime, where one is there.
//
// What: finds libcudart at run time and registers memory with it, so that
//   copies to a device need no bounce buffer. A machine without it, or without
//   a device, is the normal case and no error.
// Ownership: keeps the library loaded; registered memory is the caller's.
// Threads: any.
// Failures: none; `available` and `Register` say no, and why.
#ifndef MUONSTORE_SRC_TIER_CUDA_HOST_H_
#define MUONSTORE_SRC_TIER_CUDA_HOST_H_

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace muonstore::tier {

class CudaHost {
 public:
  // The runtimes that a process may have, newest first.
  static std::vector<std::string> DefaultLibraries();

  // Takes the first of `libraries` that can be loaded and sees a device.
  // Initializes CUDA in this process: fork before, not after.
  explicit CudaHost(const std::vector<std::string>& libraries);

  bool available() const { return register_ != nullptr; }
  // Empty where it worked, else the runtime's reason.
  std::string Register(std::span<std::byte> memory) const;
  void Unregister(std::span<std::byte> memory) const;

 private:
  using RegisterFunction = int (*)(void*, size_t, unsigned);
  using UnregisterFunction = int (*)(void*);

  bool Load(const std::string& library);

  RegisterFunction register_ = nullptr;
  UnregisterFunction unregister_ = nullptr;
};

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_CUDA_HOST_H_
