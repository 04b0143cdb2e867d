// Counts the heap of this program through operator new.
#ifndef MUONSTORE_TESTS_TORCHFILE_COUNTING_ALLOCATOR_H_
#define MUONSTORE_TESTS_TORCHFILE_COUNTING_ALLOCATOR_H_

#include <cstdint>

namespace muonstore::torchfile {

// Starts a new measurement; returns the bytes in use now.
uint64_t StartPeak();
// The most bytes in use since then.
uint64_t PeakBytes();

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_COUNTING_ALLOCATOR_H_
