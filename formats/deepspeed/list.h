// A tag directory in one line: names, sizes and the headers of rank 0.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_LIST_H_
#define MUONSTORE_FORMATS_DEEPSPEED_LIST_H_

#include <memory>
#include <string>

#include "muonstore/file_system.h"
#include "muonstore/open.h"

namespace muonstore::deepspeed {

// Never throws for what the directory holds: that is in `missing`.
TagListing ListTag(std::shared_ptr<FileSystem> fs, const std::string& path);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_LIST_H_
