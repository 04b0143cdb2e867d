// Is a native checkpoint whole? Every fault, not only the first.
//
// In this order: the manifest; names and sizes; the table of checksums; then,
// unless `quick`, every byte of every file: blocks of segments and the pages
// around them, padding, the view, carried values.
#ifndef MUONSTORE_FORMATS_NATIVE_VERIFY_H_
#define MUONSTORE_FORMATS_NATIVE_VERIFY_H_

#include <memory>
#include <string>

#include "muonstore/file_system.h"
#include "muonstore/open.h"

namespace muonstore::native {

VerifyReport VerifyTag(std::shared_ptr<FileSystem> fs,
                       const std::string& directory,
                       const VerifyOptions& options);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_VERIFY_H_
