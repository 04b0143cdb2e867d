// A torch file as lines of text, one a value, for comparing whole files.
#ifndef MUONSTORE_TESTS_DEEPSPEED_DUMP_TREE_H_
#define MUONSTORE_TESTS_DEEPSPEED_DUMP_TREE_H_

#include <string>
#include <vector>

#include "formats/torchfile/torch_file.h"

namespace muonstore::deepspeed {

// "/optimizer_state_dict/overflow: bool 0": path, type, value; classes, how
// objects were made, attributes, order of dicts; tensors with dtype, view,
// size of the storage, which storage (by first occurrence) and a CRC-32 of
// their elements.
std::vector<std::string> DumpTree(const torchfile::TorchFile& file);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_TESTS_DEEPSPEED_DUMP_TREE_H_
