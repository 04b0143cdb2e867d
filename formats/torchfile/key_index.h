// Makes large dicts quick to search.
#ifndef MUONSTORE_FORMATS_TORCHFILE_KEY_INDEX_H_
#define MUONSTORE_FORMATS_TORCHFILE_KEY_INDEX_H_

#include "formats/torchfile/memory_budget.h"
#include "formats/torchfile/value_tree.h"

namespace muonstore::torchfile {

// Fills `key_slots` of a parsed tree.
void IndexKeys(ValueTree& tree, MemoryBudget& budget);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_KEY_INDEX_H_
