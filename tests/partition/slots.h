// Fragments and copies, element by element.
//
// What: the naive meaning of fragments (a list of slots) and of a copy plan (a
//   loop over elements), for tests to compare the library with.
#ifndef MUONSTORE_TESTS_PARTITION_SLOTS_H_
#define MUONSTORE_TESTS_PARTITION_SLOTS_H_

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "muonstore/copy_plan.h"
#include "muonstore/fragment.h"

namespace muonstore {

// Where one element of a tensor lies.
struct Slot {
  int64_t element = 0;
  int32_t segment = 0;
  int64_t position = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): it misreads the comparison with 0.
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

// Every element of every fragment, sorted.
std::vector<Slot> Expand(std::span<const Fragment> fragments);

// Values by segment and position; what was never written is absent.
using Buffers = std::map<int32_t, std::map<int64_t, int64_t>>;

// Puts `first_label` + element into each slot. A slot that is taken is a
// failure of the running test.
void Fill(std::span<const Fragment> fragments, int64_t first_label,
          Buffers& buffers);

// Runs a plan. Reading what was never written, or writing twice, is a failure
// of the running test.
void Execute(std::span<const CopyOp> plan, const Buffers& source,
             Buffers& dest);

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_PARTITION_SLOTS_H_
