// Whether two value trees say the same.
#ifndef MUONSTORE_TESTS_TORCHFILE_SAME_VALUES_H_
#define MUONSTORE_TESTS_TORCHFILE_SAME_VALUES_H_

#include <cstdint>
#include <map>
#include <string>

#include "formats/torchfile/value.h"

namespace muonstore::torchfile {

struct Comparison {
  // "" or the first difference, with its path.
  std::string difference;
  // Storages of `a` and what they are in `b`.
  std::map<uint32_t, uint32_t> storages;
};

// Types, values, classes, constructions, states, order of items, tensors with
// their views, and which values are shared with which. Storage keys may differ.
// What a protocol 2 pickle says in another way than later protocols is the
// same: __builtin__, frozenset and bytearray as calls.
Comparison Compare(const Value& a, const Value& b);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_SAME_VALUES_H_
