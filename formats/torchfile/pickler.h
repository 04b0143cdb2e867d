// Pickles a draft as torch.save does.
//
// What: protocol 2; every value that can be shared is numbered, storages are
//   persistent ids whose keys "0", "1", ... follow their first occurrence.
//   Works from a list of steps, so that depth costs no stack.
// Ownership: borrows the tree. Threads: one thread.
// Failures: Error(kUnsupported) for what protocol 2 cannot say, and for a cycle
//   through values that must be complete before they are made (a set that is in
//   its own item's arguments), which pickle cannot say at all.

#ifndef MUONSTORE_FORMATS_TORCHFILE_PICKLER_H_
#define MUONSTORE_FORMATS_TORCHFILE_PICKLER_H_

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/torchfile/pickle_writer.h"
#include "formats/torchfile/value_tree.h"

namespace muonstore::torchfile {

struct Pickled {
  std::string bytes;
  // Indices into ValueTree::storages by key: storages[0] has the key "0".
  std::vector<uint32_t> storages;
};

// Pickles `tree.root`.
Pickled Pickle(const ValueTree& tree);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_PICKLER_H_
