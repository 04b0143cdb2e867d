#include "formats/native/remove_tag.h"

#include "formats/native/file_names.h"
#include "formats/native/leftovers.h"
#include "formats/native/manifest_file.h"
#include "src/base/str.h"

namespace muonstore::native {

void RemoveTag(os::OutputRoot& root, const std::string& tag) {
  FileSystem& fs = root.fs();
  const std::string directory = StrCat(root.path(), "/", tag);
  const std::string view = StrCat(directory, "/", kViewName);
  const std::string save_id = ReadManifest(fs, directory).save_id;
  if (fs.Stat(view)) {
    fs.Rename(view, StrCat(directory, "/", StagedViewName(save_id)));
    fs.SyncDirectory(directory);
  }
  fs.Remove(StrCat(directory, "/", kManifestName));
  fs.SyncDirectory(directory);
  RemoveFilesOfOthers(fs, directory, "");
  if (fs.List(directory).empty()) {
    fs.RemoveDirectory(directory);
  }
  fs.SyncDirectory(root.path());
}

}  // namespace muonstore::native
