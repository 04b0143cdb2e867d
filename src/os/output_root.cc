#include "src/os/output_root.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/os/preview_file_system.h"

namespace muonstore::os {
namespace {

constexpr std::string_view kLockName = ".muonstore-lock";
// Of a tag or file being written, and of a tag put aside for its successor.
constexpr std::string_view kPartialSuffix = ".muonstore-partial";
constexpr std::string_view kAsideSuffix = ".muonstore-aside";

std::string HiddenName(std::string_view tag, std::string_view suffix) {
  return StrCat(".", tag, suffix);
}

// The tag of a hidden name with the suffix; empty for every other name.
std::string TagOf(std::string_view name, std::string_view suffix) {
  if (name.size() <= suffix.size() + 1 || name.front() != '.' ||
      !name.ends_with(suffix)) {
    return {};
  }
  return std::string(name.substr(1, name.size() - suffix.size() - 1));
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// What is written to a link lands elsewhere.
void RequireNoLink(FileSystem& fs, const std::string& path) {
  if (const auto target = fs.ReadLink(path)) {
    throw Error(ErrorCode::kInvalidArgument,
                "is a link, through which another folder would be written; "
                "remove the link or write a tag of another name",
                {.file = path, .found = Printable(*target)});
  }
}

}  // namespace

std::string JoinPath(const std::string& directory, std::string_view name) {
  return StrCat(directory, "/", name);
}

void RequireTagName(const std::string& tag, const std::string& root) {
  // `latest` is read without the spaces around the name.
  const bool is_plain =
      !tag.empty() && tag.front() != '.' && tag.front() != ' ' &&
      tag.back() != ' ' && std::none_of(tag.begin(), tag.end(), [](char c) {
        return c == '/' || static_cast<unsigned char>(c) < 0x20;
      });
  if (!is_plain || tag == "latest") {
    throw Error(
        ErrorCode::kInvalidArgument, "cannot be the name of a tag",
        {.file = root,
         .expected = "one folder name without a dot or a space before it, a "
                     "space behind it, or control characters",
         .found = Printable(tag)});
  }
}

bool TagFolderExists(const OutputRoot& root, const std::string& tag) {
  RequireTagName(tag, root.path());
  const std::string folder = JoinPath(root.path(), tag);
  RequireNoLink(root.fs(), folder);
  const auto status = root.fs().Stat(folder);
  if (status && status->type != FileType::kDirectory) {
    throw Error(ErrorCode::kInvalidArgument, "is no directory",
                {.file = folder});
  }
  return status.has_value();
}

void RefuseExistingTag(const std::string& folder) {
  throw Error(ErrorCode::kInvalidArgument,
              "the tag exists already; --overwrite (the option overwrite) "
              "replaces it",
              {.file = folder});
}

void RemoveTree(FileSystem& fs, const std::string& path) {
  const bool is_link = fs.ReadLink(path).has_value();
  const auto status = is_link ? std::nullopt : fs.Stat(path);
  if (!is_link && !status) {
    return;
  }
  if (is_link || status->type != FileType::kDirectory) {
    fs.Remove(path);
    return;
  }
  for (const std::string& name : fs.List(path)) {
    RemoveTree(fs, JoinPath(path, name));
  }
  fs.RemoveDirectory(path);
}

OutputRoot::OutputRoot(std::shared_ptr<FileSystem> fs, std::string root)
    : fs_(std::move(fs)), root_(std::move(root)) {
  while (root_.size() > 1 && root_.back() == '/') {
    root_.pop_back();
  }
  try {
    Prepare();
  } catch (...) {
    GoAway();
    throw;
  }
}

void OutputRoot::Prepare() {
  CreateRoot();
  lock_ = fs_->TryLock(JoinPath(root_, kLockName));
  if (lock_ == nullptr) {
    throw Error(ErrorCode::kUnavailable,
                "another process writes into this root; wait until it is done",
                {.file = root_});
  }
  CleanUp();
}

OutputRoot::~OutputRoot() { GoAway(); }

void OutputRoot::GoAway() {
  lock_.reset();
  try {
    for (; !created_.empty() && fs_->List(created_.back()).empty();
         created_.pop_back()) {
      fs_->RemoveDirectory(created_.back());
    }
  } catch (const Error&) {
    // An empty folder stays; nothing is lost.
  }
}

void OutputRoot::CreateRoot() {
  std::string missing = root_;
  std::vector<std::string> created;
  for (; !fs_->Stat(missing); missing = ParentOf(missing)) {
    if (const auto target = fs_->ReadLink(missing)) {
      throw Error(ErrorCode::kUnavailable,
                  "is a link to what does not exist; make the folder that it "
                  "names, or remove the link",
                  {.file = missing, .found = Printable(*target)});
    }
    created.insert(created.begin(), missing);
  }
  created_ = std::move(created);
  fs_->CreateDirectories(root_);
  for (const std::string& directory : created_) {
    fs_->SyncDirectory(ParentOf(directory));
  }
}

void OutputRoot::CleanUp() {
  for (const std::string& name : fs_->List(root_)) {
    const std::string aside = TagOf(name, kAsideSuffix);
    if (!aside.empty() && !fs_->Stat(JoinPath(root_, aside))) {
      fs_->Rename(JoinPath(root_, name), JoinPath(root_, aside));
      fs_->SyncDirectory(root_);
    } else if (!aside.empty() || !TagOf(name, kPartialSuffix).empty()) {
      RemoveTree(*fs_, JoinPath(root_, name));
    }
  }
}

StagedFile::StagedFile(OutputRoot& root, const std::string& name)
    : root_(root),
      staging_(JoinPath(root.path(), HiddenName(name, kPartialSuffix))),
      final_(JoinPath(root.path(), name)) {
  const bool is_link = root_.fs().ReadLink(final_).has_value();
  const auto status = is_link ? std::nullopt : root_.fs().Stat(final_);
  if (status && status->type != FileType::kRegular) {
    throw Error(ErrorCode::kUnavailable,
                "cannot be replaced by a file: it is none", {.file = final_});
  }
  file_ = root_.fs().CreateFile(staging_);
}

StagedFile::~StagedFile() {
  try {
    file_.reset();
    RemoveTree(root_.fs(), staging_);
  } catch (const Error&) {
    // The next writer into this root removes it.
  }
}

void StagedFile::Write(std::span<const std::byte> bytes) {
  file_->WriteAt(size_bytes_, bytes);
  size_bytes_ += bytes.size();
}

void StagedFile::Finish() {
  file_->Sync();
  file_->Close();
}

void StagedFile::Commit() {
  root_.fs().Rename(staging_, final_);
  root_.fs().SyncDirectory(root_.path());
}

SetAside::SetAside(OutputRoot& root, const std::string& name)
    : root_(root), path_(JoinPath(root.path(), name)) {
  FileSystem& fs = root.fs();
  const bool is_link = fs.ReadLink(path_).has_value();
  const auto status = is_link ? std::nullopt : fs.Stat(path_);
  if (!is_link && !status) return;
  if (status && status->type != FileType::kRegular) {
    throw Error(ErrorCode::kUnavailable, "cannot be put aside: it is no file",
                {.file = path_});
  }
  const std::string aside =
      JoinPath(root.path(), HiddenName(name + ".before", kPartialSuffix));
  fs.Rename(path_, aside);
  aside_ = aside;
  fs.SyncDirectory(root.path());
}

SetAside::~SetAside() {
  if (aside_.empty()) return;
  try {
    root_.fs().Rename(aside_, path_);
    root_.fs().SyncDirectory(root_.path());
  } catch (const Error&) {
    // What failed before that is the error to tell.
  }
}

void SetAside::Drop() {
  if (aside_.empty()) return;
  try {
    root_.fs().Remove(std::exchange(aside_, ""));
  } catch (const Error&) {
    // The next writer into this root removes it.
  }
}

std::unique_ptr<StagedFile> StageLatest(OutputRoot& root,
                                        const std::string& tag) {
  auto latest = std::make_unique<StagedFile>(root, "latest");
  latest->Write(std::as_bytes(std::span(tag)));
  latest->Finish();
  return latest;
}

void RemoveDirectoryOf(OutputRoot& root, const std::string& tag) {
  const std::string hidden =
      JoinPath(root.path(), HiddenName(tag, kPartialSuffix));
  root.fs().Rename(JoinPath(root.path(), tag), hidden);
  root.fs().SyncDirectory(root.path());
  RemoveTree(root.fs(), hidden);
}

StagedDirectory::StagedDirectory(OutputRoot& root, std::string tag,
                                 bool overwrite)
    : root_(root), tag_(std::move(tag)) {
  staging_ = JoinPath(root_.path(), HiddenName(tag_, kPartialSuffix));
  final_ = JoinPath(root_.path(), tag_);
  if (TagFolderExists(root_, tag_) && !overwrite) {
    RefuseExistingTag(final_);
  }
  root_.fs().CreateDirectories(staging_);
}

StagedDirectory::~StagedDirectory() {
  try {
    RemoveTree(root_.fs(), staging_);
  } catch (const Error&) {
    // The next writer into this root removes it.
  }
}

std::shared_ptr<FileSystem> StagedDirectory::Preview() const {
  std::map<std::string, std::string> entries;
  for (const std::string& name : root_.fs().List(staging_)) {
    entries[name] = JoinPath(staging_, name);
  }
  return PreviewFileSystem(root_.shared_fs(), final_, std::move(entries));
}

void StagedDirectory::SyncAll(const std::string& directory) {
  for (const std::string& name : root_.fs().List(directory)) {
    const std::string path = JoinPath(directory, name);
    const auto status = root_.fs().Stat(path);
    if (status && status->type == FileType::kDirectory) {
      SyncAll(path);
    }
  }
  root_.fs().SyncDirectory(directory);
}

void StagedDirectory::MoveAsideAndIn() {
  const std::string aside =
      JoinPath(root_.path(), HiddenName(tag_, kAsideSuffix));
  root_.fs().Rename(final_, aside);
  try {
    root_.fs().Rename(staging_, final_);
  } catch (const Error&) {
    root_.fs().Rename(aside, final_);
    throw;
  }
  root_.fs().SyncDirectory(root_.path());
  RemoveTree(root_.fs(), aside);
}

void StagedDirectory::Commit() {
  FileSystem& fs = root_.fs();
  SyncAll(staging_);
  if (!fs.Stat(final_)) {
    fs.Rename(staging_, final_);
  } else if (!fs.Exchange(staging_, final_)) {
    MoveAsideAndIn();
    return;
  }
  fs.SyncDirectory(root_.path());
  RemoveTree(fs, staging_);
}

}  // namespace muonstore::os
