#include "formats/native/leftovers.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "formats/native/file_names.h"
#include "formats/native/manifest_file.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

bool IsDirectory(FileSystem& fs, const std::string& path) {
  const auto status = fs.Stat(path);
  return status && status->type == FileType::kDirectory;
}

// A folder of the root, by the names in it.
struct Folder {
  std::string path;
  std::set<std::string> ids;
  bool has_manifest = false;
};

Folder LookInto(FileSystem& fs, std::string path) {
  Folder folder{.path = std::move(path)};
  for (const std::string& name : fs.List(folder.path)) {
    folder.has_manifest = folder.has_manifest || name == kManifestName;
    folder.ids.insert(SaveIdOf(name));
  }
  folder.ids.erase("");
  return folder;
}

// `complete`: the ids of tags with a manifest.
void CleanTag(FileSystem& fs, const Folder& folder,
              const std::set<std::string>& complete) {
  const auto& [directory, ids, has_manifest] = folder;
  if (ids.empty()) {
    return;
  }
  if (!has_manifest) {
    // No two saves have one id: this is a copy of a tag, still being made.
    const bool is_copy = std::any_of(
        ids.begin(), ids.end(),
        [&](const std::string& id) { return complete.contains(id); });
    if (is_copy) return;
    // Its removal may be younger than the last fsync.
    fs.SyncDirectory(directory);
    RemoveFilesOfOthers(fs, directory, "");
    if (fs.List(directory).empty()) {
      fs.RemoveDirectory(directory);
    }
    return;
  }
  if (ids.size() == 1 &&
      !fs.Stat(os::JoinPath(directory, StagedViewName(*ids.begin())))) {
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
  const std::string staged = os::JoinPath(directory, StagedViewName(save_id));
  if (fs.Stat(staged)) {
    fs.Rename(staged, os::JoinPath(directory, kViewName));
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
    const std::string path = os::JoinPath(directory, name);
    if (!id.empty() && id != save_id && !IsDirectory(fs, path)) {
      RemoveIfThere(fs, path);
    }
  }
}

void CleanLeftovers(os::OutputRoot& root) {
  FileSystem& fs = root.fs();
  std::vector<Folder> folders;
  std::set<std::string> complete;
  for (const std::string& name : fs.List(root.path())) {
    const std::string directory = os::JoinPath(root.path(), name);
    if (fs.ReadLink(directory) || !IsDirectory(fs, directory) ||
        !fs.MayList(directory)) {
      continue;
    }
    folders.push_back(LookInto(fs, directory));
    if (folders.back().has_manifest) {
      complete.insert(folders.back().ids.begin(), folders.back().ids.end());
    }
  }
  for (const Folder& folder : folders) {
    try {
      CleanTag(fs, folder, complete);
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
