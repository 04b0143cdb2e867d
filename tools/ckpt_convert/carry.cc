#include "tools/ckpt_convert/carry.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "converters/fingerprinted_sink.h"
#include "formats/deepspeed/file_names.h"
#include "formats/deepspeed/tag_directory.h"
#include "formats/native/file_names.h"
#include "src/base/str.h"
#include "src/os/copy_tree.h"

namespace muonstore::tools {
namespace {

// No tag's name begins with a dot: this cannot be where one waits.
constexpr std::string_view kStagingName = "..carried.muonstore-partial";

bool Exists(FileSystem& fs, const std::string& path) {
  return fs.ReadLink(path) || fs.Stat(path);
}

bool IsTag(FileSystem& fs, const std::string& path) {
  const auto status = fs.Stat(path);
  if (!status || status->type != FileType::kDirectory) return false;
  const std::vector<std::string> names = fs.List(path);
  return native::IsTagDirectory(names) || deepspeed::IsTagDirectory(names);
}

// Of a checkpoint, in whichever format.
bool IsPartOfTag(const std::string& name) {
  return deepspeed::ParseOptimFileName(name) ||
         deepspeed::ParseModelFileName(name) || name == "offloaded_tensors" ||
         name == native::kManifestName || name == native::kViewName ||
         !native::SaveIdOf(name).empty();
}

bool IsOurs(const std::string& name) {
  return name == "latest" || IsFingerprintName(name) ||
         name.find(".muonstore-") != name.npos;
}

void Add(FileSystem& fs, const std::string& folder, const std::string& name,
         const std::string& target, const std::string& shown,
         std::vector<Extra>& extras) {
  const std::string from = StrCat(folder, "/", name);
  const bool is_link = fs.ReadLink(from).has_value();
  const auto status = fs.Stat(from);
  if (!is_link && !status) return;
  const bool is_folder = !is_link && status->type == FileType::kDirectory;
  extras.push_back(
      {.from = from,
       .to = StrCat(target, "/", name),
       .name = StrCat(shown, name, is_folder ? "/" : ""),
       .is_special = !is_link && status->type == FileType::kOther});
}

// Links are copied as links, whatever they lead to.
void AddSpecialFiles(FileSystem& fs, const std::string& path,
                     const std::string& name, std::vector<std::string>& names) {
  const auto status = fs.ReadLink(path) ? std::nullopt : fs.Stat(path);
  if (!status) return;
  if (status->type == FileType::kOther) names.push_back(name);
  if (status->type != FileType::kDirectory) return;
  for (const std::string& child : fs.List(path)) {
    AddSpecialFiles(fs, StrCat(path, "/", child),
                    StrCat(name, name.ends_with('/') ? "" : "/", child), names);
  }
}

}  // namespace

std::vector<Extra> FindExtras(FileSystem& fs, const Places& places) {
  std::vector<Extra> extras;
  if (places.source_root.empty()) return extras;
  if (!places.same_root) {
    for (const std::string& name : fs.List(places.source_root)) {
      if (IsOurs(name) || IsTag(fs, StrCat(places.source_root, "/", name))) {
        continue;
      }
      Add(fs, places.source_root, name, places.target_root, "", extras);
    }
    for (Extra& extra : extras) extra.is_there = Exists(fs, extra.to);
  }
  // The tag is new, or takes another's place, with what that had or without:
  // Commit() sees.
  const std::string tag =
      std::filesystem::path(places.source_path).filename().string();
  for (const std::string& name : fs.List(places.source_path)) {
    if (IsPartOfTag(name)) continue;
    Add(fs, places.source_path, name, places.target_path(), tag + "/", extras);
  }
  return extras;
}

std::vector<std::string> FindSpecialFiles(FileSystem& fs,
                                          const std::vector<Extra>& extras) {
  std::vector<std::string> names;
  for (const Extra& extra : extras) {
    if (extra.is_there) continue;
    AddSpecialFiles(fs, extra.from, extra.name, names);
  }
  return names;
}

StagedCarry::StagedCarry(os::OutputRoot& root, std::vector<Extra> extras,
                         const std::function<void()>& on_block)
    : root_(root),
      staging_(StrCat(root.path(), "/", kStagingName)),
      extras_(std::move(extras)) {
  if (extras_.empty()) return;
  root_.fs().CreateDirectories(staging_);
  try {
    for (size_t i = 0; i < extras_.size(); ++i) {
      if (extras_[i].is_there) continue;
      os::CopyTree(root_.fs(), extras_[i].from, StagedPath(i), on_block);
    }
  } catch (...) {
    os::RemoveTree(root_.fs(), staging_);
    throw;
  }
}

StagedCarry::~StagedCarry() {
  try {
    os::RemoveTree(root_.fs(), staging_);
  } catch (const Error&) {
    // The next writer into this root removes it.
  }
}

std::string StagedCarry::StagedPath(size_t index) const {
  return StrCat(staging_, "/", index);
}

std::vector<std::string> StagedCarry::Commit() {
  std::vector<std::string> copied;
  FileSystem& fs = root_.fs();
  for (size_t i = 0; i < extras_.size(); ++i) {
    extras_[i].is_there = Exists(fs, extras_[i].to);
    if (!Exists(fs, StagedPath(i)) || extras_[i].is_there) continue;
    fs.Rename(StagedPath(i), extras_[i].to);
    fs.SyncDirectory(
        std::filesystem::path(extras_[i].to).parent_path().string());
    copied.push_back(extras_[i].name);
  }
  return copied;
}

}  // namespace muonstore::tools
