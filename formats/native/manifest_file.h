// The manifest of a tag directory.
#ifndef MUONSTORE_FORMATS_NATIVE_MANIFEST_FILE_H_
#define MUONSTORE_FORMATS_NATIVE_MANIFEST_FILE_H_

#include <string>

#include "formats/native/manifest.h"
#include "muonstore/file_system.h"

namespace muonstore::native {

// A larger manifest is refused: opening one takes a few times its size.
inline constexpr uint64_t kMaxManifestBytes = 512 << 20;

// Errors name the file.
Manifest ReadManifest(FileSystem& fs, const std::string& directory);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_MANIFEST_FILE_H_
