// What saves leave behind in the tags of a root, and its removal. The root is
// locked by the caller.
#ifndef MUONSTORE_FORMATS_NATIVE_LEFTOVERS_H_
#define MUONSTORE_FORMATS_NATIVE_LEFTOVERS_H_

#include <string>

#include "muonstore/file_system.h"
#include "src/os/output_root.h"

namespace muonstore::native {

// The view that the commit of `save_id` left under its staged name.
void FinishView(FileSystem& fs, const std::string& directory,
                const std::string& save_id);

// A rank that ends may remove its own file at the same time.
void RemoveIfThere(FileSystem& fs, const std::string& path);

// Every file with the id of a save, but for those of `save_id`.
void RemoveFilesOfOthers(FileSystem& fs, const std::string& directory,
                         const std::string& save_id);

// Removes what saves that died left in the tags of a root, and finishes what
// they left undone after their commit.
void CleanLeftovers(os::OutputRoot& root);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_LEFTOVERS_H_
