#include "formats/native/leftovers.h"

#include <set>

#include "formats/native/file_names.h"
#include "formats/native/manifest_file.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

std::string Join(const std::string& directory, std::string_view name) {
  return StrCat(directory, "/", name);
}

bool IsDirectory(FileSystem& fs, const std::string& path) {
  const auto status = fs.Stat(path);
  return status && status->type == FileType::kDirectory;
}

void CleanTag(FileSystem& fs, const std::string& directory) {
  std::set<std::string> ids;
  bool has_manifest = false;
  for (const std::string& name : fs.List(directory)) {
    has_manifest = has_manifest || name == kManifestName;
    ids.insert(SaveIdOf(name));
  }
  ids.erase("");
  if (ids.empty()) {
    return;
  }
  if (!has_manifest) {
    // Its removal may be younger than the last fsync.
    fs.SyncDirectory(directory);
    RemoveFilesOfOthers(fs, directory, "");
    if (fs.List(directory).empty()) {
      fs.RemoveDirectory(directory);
    }
    return;
  }
  if (ids.size() == 1 &&
      !fs.Stat(Join(directory, StagedViewName(*ids.begin())))) {
    return;
  }
  const std::string save_id = ReadManifest(fs, directory).save_id;
  // The commit's rename may be younger than the last fsync: without it the
  // files of the save before are still needed.
  fs.SyncDirectory(directory);
  FinishView(fs, directory, save_id);
  RemoveFilesOfOthers(fs, directory, save_id);
}

}  // namespace

void FinishView(FileSystem& fs, const std::string& directory,
                const std::string& save_id) {
  const std::string staged = Join(directory, StagedViewName(save_id));
  if (fs.Stat(staged)) {
    fs.Rename(staged, Join(directory, kViewName));
  }
}

void RemoveIfThere(FileSystem& fs, const std::string& path) {
  try {
    fs.Remove(path);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
  }
}

void RemoveFilesOfOthers(FileSystem& fs, const std::string& directory,
                         const std::string& save_id) {
  for (const std::string& name : fs.List(directory)) {
    const std::string id = SaveIdOf(name);
    if (!id.empty() && id != save_id) {
      RemoveIfThere(fs, Join(directory, name));
    }
  }
}

void CleanLeftovers(os::OutputRoot& root) {
  FileSystem& fs = root.fs();
  for (const std::string& name : fs.List(root.path())) {
    const std::string directory = Join(root.path(), name);
    if (fs.ReadLink(directory) || !IsDirectory(fs, directory)) {
      continue;
    }
    try {
      CleanTag(fs, directory);
    } catch (const Error& error) {
      // A tag whose manifest is damaged is left as it is.
      if (error.code() != ErrorCode::kDataLoss &&
          error.code() != ErrorCode::kUnsupported) {
        throw;
      }
    }
  }
}

}  // namespace muonstore::native
