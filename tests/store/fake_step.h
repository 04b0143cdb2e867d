// Steps without an optimizer: every element gets a value that says where it is
// and which step wrote it.

#ifndef MUONSTORE_TESTS_STORE_FAKE_STEP_H_
#define MUONSTORE_TESTS_STORE_FAKE_STEP_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "src/store/snapshot.h"
#include "src/store/store_impl.h"

namespace muonstore::testutil {

// What step `step` leaves in a segment of `size` bytes.
std::vector<std::byte> StepBytes(std::string_view kind, int32_t flat_group,
                                 int64_t step, size_t size);

// Writes all segments as an executor does, in the order of a step, and counts
// it. Waits where a step waits.
void FakeStep(StateStore::Impl& store);

// The current generation of a segment.
std::vector<std::byte> CurrentBytes(const StateStore::Impl& store,
                                    std::string_view kind, int32_t flat_group);

// A segment of a snapshot, in small reads where `part_bytes` is not 0.
std::vector<std::byte> SnapshotBytes(const Snapshot& snapshot, size_t segment,
                                     size_t part_bytes = 0);

// How many segments of the snapshot are not as step `step` left them.
int32_t NumOtherThanStep(const Snapshot& snapshot, int64_t step);
// The same of the current generation of all saved kinds.
int32_t NumOtherThanStep(const StateStore::Impl& store, int64_t step);

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_STORE_FAKE_STEP_H_
