// A CUDA runtime for tests: it remembers what is registered.
//
// What: the three functions that src/tier/cuda_host.cc looks for. Compiled
//   twice: with a device and, with FAKE_CUDART_DEVICES=0, without.
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace {

struct Registered {
  std::mutex mutex;
  std::map<void*, size_t> ranges;
};

Registered& All() {
  static Registered all;
  return all;
}

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* count) {
  *count = FAKE_CUDART_DEVICES;
  return FAKE_CUDART_DEVICES > 0 ? 0 : 100;
}

// Fails as real ones do for a range that is registered already, and, to give
// tests a failure, for 7 pages.
int cudaHostRegister(void* address, size_t size_bytes, unsigned flags) {
  Registered& all = All();
  const std::lock_guard lock(all.mutex);
  const bool fits = flags == 1 && size_bytes != size_t{7} * 4096;
  return fits && all.ranges.emplace(address, size_bytes).second ? 0 : 712;
}

int cudaHostUnregister(void* address) {
  Registered& all = All();
  const std::lock_guard lock(all.mutex);
  return all.ranges.erase(address) == 1 ? 0 : 713;
}

// For the test alone.
size_t FakeCudartRegisteredBytes() {
  Registered& all = All();
  const std::lock_guard lock(all.mutex);
  size_t bytes = 0;
  for (const auto& [address, size] : all.ranges) {
    bytes += size;
  }
  return bytes;
}

}  // extern "C"
