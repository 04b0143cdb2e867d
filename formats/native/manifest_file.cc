#include "formats/native/manifest_file.h"

#include "formats/native/file_names.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {

Manifest ReadManifest(FileSystem& fs, const std::string& directory) {
  const std::string path = StrCat(directory, "/", kManifestName);
  if (!fs.Stat(path)) {
    throw Error(ErrorCode::kDataLoss,
                "a native checkpoint without its manifest.json: its save never "
                "committed (it was cut short, or is still under way), or the "
                "manifest was deleted. Take another tag; the next save into "
                "this root removes what lies here",
                {.file = path});
  }
  const std::string text = ReadSmallFile(fs, path, kMaxManifestBytes);
  try {
    return ParseManifest(text);
  } catch (const Error& error) {
    throw error.WithFile(path);
  }
}

}  // namespace muonstore::native
