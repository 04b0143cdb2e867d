// Removes a native tag so that no crash leaves a part of it that looks whole.
//
//  1. checkpoint.h5 gets its staged name, which carries the save's id, and the
//     folder is fsynced.
//  2. manifest.json is removed and the folder fsynced: the tag is gone.
//  3. All files with a save's id are removed, then the folder, if nothing else
//     is in it.
// After a crash in 1 the next writer gives the view its name back; after 2 it
// finishes the work.
#ifndef MUONSTORE_FORMATS_NATIVE_REMOVE_TAG_H_
#define MUONSTORE_FORMATS_NATIVE_REMOVE_TAG_H_

#include <string>

#include "src/os/output_root.h"

namespace muonstore::native {

// Throws what the file system does, or for a manifest that cannot be read.
void RemoveTag(os::OutputRoot& root, const std::string& tag);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_REMOVE_TAG_H_
