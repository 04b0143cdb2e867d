// Files as they will be once something staged is in place.
//
// What: a view of another file system in which one directory holds given files;
//   all other paths are as they are.
// Ownership: shares the other file system.
// Threads: as FileSystem.
// Failures: those of the other file system; writing is Error(kInternal).
#ifndef MUONSTORE_SRC_OS_PREVIEW_FILE_SYSTEM_H_
#define MUONSTORE_SRC_OS_PREVIEW_FILE_SYSTEM_H_

#include <map>
#include <memory>
#include <string>

#include "muonstore/file_system.h"

namespace muonstore::os {

// `entries`: by name in `directory`, the path of what is there.
std::shared_ptr<FileSystem> PreviewFileSystem(
    std::shared_ptr<FileSystem> base, std::string directory,
    std::map<std::string, std::string> entries);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_PREVIEW_FILE_SYSTEM_H_
