// Copies a file, a link, or a folder with all that is in it.
//
// What: links stay links; a file that its owner may execute stays one, all else
//   of the modes follows the umask. Sockets, pipes and devices are left out.
//   What is copied is durable.
// Threads: one thread a call.
// Failures: those of the file system, and what `on_block` throws; what was
//   copied until then stays.
#ifndef MUONSTORE_SRC_OS_COPY_TREE_H_
#define MUONSTORE_SRC_OS_COPY_TREE_H_

#include <functional>
#include <string>

#include "muonstore/file_system.h"

namespace muonstore::os {

// `to` does not exist, its folder does. `on_block` is called between blocks and
// files.
void CopyTree(FileSystem& fs, const std::string& from, const std::string& to,
              const std::function<void()>& on_block);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_COPY_TREE_H_
