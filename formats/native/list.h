// A native tag in one line: the manifest, and names and sizes of the files.
#ifndef MUONSTORE_FORMATS_NATIVE_LIST_H_
#define MUONSTORE_FORMATS_NATIVE_LIST_H_

#include <memory>
#include <string>

#include "muonstore/file_system.h"
#include "muonstore/open.h"

namespace muonstore::native {

// Never throws for what the directory holds: that is in `missing`.
TagListing ListTag(std::shared_ptr<FileSystem> fs,
                   const std::string& directory);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_LIST_H_
