#include "formats/native/manifest_file.h"

#include "formats/native/file_names.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {

Manifest ReadManifest(FileSystem& fs, const std::string& directory) {
  const std::string path = StrCat(directory, "/", kManifestName);
  const std::string text = ReadSmallFile(fs, path, kMaxManifestBytes);
  try {
    return ParseManifest(text);
  } catch (const Error& error) {
    throw error.WithFile(path);
  }
}

}  // namespace muonstore::native
