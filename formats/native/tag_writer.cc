// How a native tag comes to be. The root's lock is held throughout.
//
//  1. Leftovers of saves that died are removed from every tag of the root.
//  2. The tag's folder is made if it is absent.
//  3. Every file is written under a name that carries the save's id, beside
//     what the tag may hold already, and fsynced.
//  4. manifest.json.<id>, which names them all, is written and fsynced; then
//     the folder is fsynced.
//  5. It is renamed to manifest.json: that is the commit.
//  6. The folder and the root are fsynced.
//  7. checkpoint.<id>.h5 is renamed to checkpoint.h5, and the files of what the
//     tag held before are removed. Failures from here on are not errors of the
//     save: the next writer finishes the work.
//
// A reader sees the old manifest with all of its files or the new one with all
// of its files. Between 5 and 7 checkpoint.h5 may still show the old save; no
// program of ours reads it. What this does not promise: that a reader which
// opened the old checkpoint before the commit can go on reading after 7.
#include "formats/native/tag_writer.h"

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "formats/native/file_names.h"
#include "formats/native/hash.h"
#include "formats/native/leftovers.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/os/preview_file_system.h"

namespace muonstore::native {
namespace {

// What a DeepSpeed tag holds; a native one replaces it.
bool IsDeepSpeedName(std::string_view name) {
  return name.ends_with("_optim_states.pt") ||
         name.ends_with("_model_states.pt") || name == "offloaded_tensors";
}

}  // namespace

std::string NewSaveId() {
  std::random_device source;
  return ToHex(uint64_t{source()} << 32 | source());
}

TagWriter::TagWriter(os::OutputRoot& root, const std::string& tag,
                     std::string save_id, bool overwrite)
    : root_(root),
      directory_(os::JoinPath(root.path(), tag)),
      save_id_(std::move(save_id)) {
  CleanLeftovers(root);
  const bool exists = os::TagFolderExists(root, tag);
  // A folder without anything in it, as a save that died may leave, is no tag.
  if (exists && !overwrite && !fs().List(directory_).empty()) {
    os::RefuseExistingTag(directory_);
  }
  made_directory_ = !exists;
  fs().CreateDirectories(directory_);
}

TagWriter::~TagWriter() {
  if (committed_) {
    return;
  }
  try {
    RemoveOwn();
  } catch (const Error&) {
    // The next writer into this root removes them.
  }
}

void TagWriter::RemoveOwn() {
  for (const std::string& name : fs().List(directory_)) {
    if (SaveIdOf(name) == save_id_) {
      RemoveIfThere(fs(), os::JoinPath(directory_, name));
    }
  }
  if (made_directory_) {
    fs().RemoveDirectory(directory_);
  }
}

std::unique_ptr<WritableFile> TagWriter::Create(const std::string& name) const {
  return fs().CreateDirectFile(os::JoinPath(directory_, name));
}

FileDigest TagWriter::WriteFile(
    const std::string& name,
    const std::function<void(const Append&)>& fill) const {
  const auto file = Create(name);
  Hasher64 hasher;
  FileDigest digest;
  fill([&](std::span<const std::byte> bytes) {
    file->WriteAt(digest.size_bytes, bytes);
    hasher.Update(bytes);
    digest.size_bytes += bytes.size();
  });
  file->Sync();
  file->Close();
  digest.digest = hasher.Digest();
  return digest;
}

std::shared_ptr<FileSystem> TagWriter::Preview() const {
  std::map<std::string, std::string> entries;
  for (const std::string& name : fs().List(directory_)) {
    if (SaveIdOf(name) != save_id_) continue;
    const bool is_manifest = name == StagedManifestName(save_id_);
    entries[is_manifest ? std::string(kManifestName) : name] =
        os::JoinPath(directory_, name);
  }
  return os::PreviewFileSystem(root_.shared_fs(), directory_,
                               std::move(entries));
}

void TagWriter::RenameManifest() {
  const std::string staged =
      os::JoinPath(directory_, StagedManifestName(save_id_));
  try {
    fs().Rename(staged, os::JoinPath(directory_, kManifestName));
  } catch (const Error&) {
    // A network file system may report an error of what it has done.
    committed_ = !fs().Stat(staged);
    throw;
  }
  committed_ = true;
}

void TagWriter::Commit() {
  fs().SyncDirectory(directory_);
  RenameManifest();
  fs().SyncDirectory(directory_);
  fs().SyncDirectory(root_.path());
  try {
    RemoveOld();
  } catch (const Error&) {
    // The tag is whole and durable; the next writer tidies up.
  }
}

void TagWriter::RemoveOld() {
  const std::string view = os::JoinPath(directory_, kViewName);
  if (fs().Stat(os::JoinPath(directory_, StagedViewName(save_id_)))) {
    FinishView(fs(), directory_, save_id_);
  } else if (fs().Stat(view)) {
    fs().Remove(view);  // Of the save before.
  }
  RemoveFilesOfOthers(fs(), directory_, save_id_);
  for (const std::string& name : fs().List(directory_)) {
    if (IsDeepSpeedName(name)) {
      os::RemoveTree(fs(), os::JoinPath(directory_, name));
    }
  }
  fs().SyncDirectory(directory_);
}

}  // namespace muonstore::native
