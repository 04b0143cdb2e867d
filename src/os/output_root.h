// A checkpoint root that this process writes into.
//
// What: creates the root where it is absent, keeps other writers out while it
//   lives, and removes what writers that died left behind. A StagedDirectory is
//   a tag that appears in the root whole or not at all.
// Ownership: removes the root again if it created it and nothing is in it.
//   A StagedDirectory must not outlive its OutputRoot.
// Threads: one thread, but files may be created in a StagedDirectory's path()
//   by many.
// Failures: Error. kUnavailable: another process writes into the root.
//   kInvalidArgument: the tag exists, or its name cannot be one.
#ifndef MUONSTORE_SRC_OS_OUTPUT_ROOT_H_
#define MUONSTORE_SRC_OS_OUTPUT_ROOT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "muonstore/file_system.h"

namespace muonstore::os {

std::string JoinPath(const std::string& directory, std::string_view name);

// Removes a file, or a directory with all that is in it; links are removed, not
// followed. Nothing there is no error.
void RemoveTree(FileSystem& fs, const std::string& path);

// Error(kInvalidArgument) for what cannot be the name of a tag in `root`.
void RequireTagName(const std::string& tag, const std::string& root);

class OutputRoot {
 public:
  OutputRoot(std::shared_ptr<FileSystem> fs, std::string root);
  ~OutputRoot();
  OutputRoot(const OutputRoot&) = delete;
  OutputRoot& operator=(const OutputRoot&) = delete;

  FileSystem& fs() const { return *fs_; }
  const std::shared_ptr<FileSystem>& shared_fs() const { return fs_; }
  const std::string& path() const { return root_; }

 private:
  void Prepare();
  void CreateRoot();
  // A tag that was put aside and whose successor never came is put back.
  void CleanUp();
  // Gives the lock back and removes what was made and is empty.
  void GoAway();

  std::shared_ptr<FileSystem> fs_;
  std::string root_;
  std::vector<std::string> created_;  // Directories that were absent before.
  std::unique_ptr<FileLock> lock_;
};

// Whether the root has a folder of this name. Error(kInvalidArgument) for a
// name that no tag can have, and for a link or a file in its place.
bool TagFolderExists(const OutputRoot& root, const std::string& tag);
[[noreturn]] void RefuseExistingTag(const std::string& folder);

// A file of the root that appears whole or not at all. Once it is written and
// synced, Commit() only renames: after the commit of a tag nothing is left that
// needs space.
class StagedFile {
 public:
  // Error(kUnavailable) where `name` is there and is no file.
  StagedFile(OutputRoot& root, const std::string& name);
  // Without Commit() nothing is left.
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  // Appends to it.
  void Write(std::span<const std::byte> bytes);
  // Every byte is there and durable.
  void Finish();
  // Replaces what had the name; a link itself, not what it leads to.
  void Commit();

 private:
  OutputRoot& root_;
  std::string staging_;
  std::string final_;
  uint64_t size_bytes_ = 0;
  std::unique_ptr<WritableFile> file_;
};

// A file of the root, if it is there, put out of the way of what replaces it.
// What a crash leaves of it the next writer removes.
class SetAside {
 public:
  // Durable. Error(kUnavailable) where `name` is there and is no file.
  SetAside(OutputRoot& root, const std::string& name);
  // Puts it back, unless it was dropped.
  ~SetAside();
  SetAside(const SetAside&) = delete;
  SetAside& operator=(const SetAside&) = delete;

  void Drop();

 private:
  OutputRoot& root_;
  std::string path_;
  std::string aside_;  // Empty: there is nothing to put back.
};

// `latest`, to be committed.
std::unique_ptr<StagedFile> StageLatest(OutputRoot& root,
                                        const std::string& tag);

// Removes a tag of any format: it is gone at once, and what a crash leaves of
// it the next writer removes.
void RemoveDirectoryOf(OutputRoot& root, const std::string& tag);

class StagedDirectory {
 public:
  // With `overwrite`, Commit() replaces the tag; without, an existing one is an
  // error here already.
  StagedDirectory(OutputRoot& root, std::string tag, bool overwrite);
  // Without Commit() nothing is left.
  ~StagedDirectory();
  StagedDirectory(const StagedDirectory&) = delete;
  StagedDirectory& operator=(const StagedDirectory&) = delete;

  // Where files are written until Commit().
  const std::string& path() const { return staging_; }
  // Where they are afterwards.
  const std::string& final_path() const { return final_; }

  // Files in which final_path() holds what path() does.
  std::shared_ptr<FileSystem> Preview() const;

  // Every file must be synced and closed. The tag is there, and durable, or, on
  // an error, what was there before is.
  void Commit();

 private:
  void SyncAll(const std::string& directory);
  void MoveAsideAndIn();

  OutputRoot& root_;
  std::string tag_;
  std::string staging_;
  std::string final_;
};

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_OUTPUT_ROOT_H_
