// A driver, CUDA runtime, cuBLAS and NVRTC for machines without a GPU.
//
// What: a shared library with the functions that the plug-in looks for. Streams
//   are queues, nothing of which runs before somebody waits; then a seeded
//   choice decides which stream goes next, so that a missing event shows.
//   Device memory holds NaNs at first, products are summed in double and
//   rounded to float, and the kernels are the real ones: their source, compiled
//   for this processor. Any call, and any piece of work, can be made to fail.
// Ownership: Look tells what is not given back.
// Threads: one. State is the process's.

#ifndef MUONSTORE_TESTS_CUDA_FAKE_CUDA_H_
#define MUONSTORE_TESTS_CUDA_FAKE_CUDA_H_

#include <cstdint>
#include <string>
#include <vector>

namespace muonstore::fake_cuda {

struct Options {
  uint64_t seed = 1;
  int num_devices = 1;
  int init_status = 0;  // What cuInit answers.
  // Whether modules that nvcc made load; NVRTC's always do.
  bool takes_built_kernels = false;
  bool compiles = true;
  // From 1; 0: none. A call that frees does so and fails all the same.
  int64_t fail_call = 0;
  int64_t fail_work = 0;
};

struct Counts {
  int64_t calls = 0;
  int64_t work = 0;
  int64_t products = 0;
  int64_t bf16_products = 0;
  int64_t compilations = 0;
  int64_t host_to_device_bytes = 0;
  int64_t device_to_host_bytes = 0;
  int64_t pageable_copies = 0;
  // Streams that had work to do at the same time, at most.
  int64_t peak_busy_streams = 0;
  int64_t live_bytes = 0;  // Of device memory.
  int64_t peak_bytes = 0;
  // Streams, events, modules, programs, cuBLAS handles, allocations and
  // registrations that are there.
  int64_t live_objects = 0;
  int64_t num_waiting = 0;  // Pieces of work.
  std::string failed_call;
  // What no sound program does: use of freed memory, ...
  std::vector<std::string> violations;
};

// Forgets all.
void Reset(const Options& options);
Counts Look();

}  // namespace muonstore::fake_cuda

#endif  // MUONSTORE_TESTS_CUDA_FAKE_CUDA_H_
