#include "converters/locate.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "formats/deepspeed/tag_directory.h"
#include "formats/native/file_names.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

constexpr uint64_t kMaxLatestBytes = 4096;
constexpr size_t kMaxListed = 12;
// A run folder is searched this deep, and not beyond this many folders.
constexpr int kSearchDepth = 4;
constexpr size_t kSearchFolders = 10000;

bool IsDirectory(FileSystem& fs, const std::string& path) {
  const auto status = fs.Stat(path);
  return status && status->type == FileType::kDirectory;
}

bool IsTagPath(FileSystem& fs, const std::string& path) {
  if (!IsDirectory(fs, path)) {
    return false;
  }
  const std::vector<std::string> names = fs.List(path);
  return native::IsTagDirectory(names) || deepspeed::IsTagDirectory(names);
}

bool IsUncommitted(const std::vector<std::string>& names) {
  return native::IsUncommittedTag(names) && !deepspeed::IsTagDirectory(names);
}

// No tag, but what its user takes for one.
bool IsUncommittedPath(FileSystem& fs, const std::string& path) {
  return IsDirectory(fs, path) && fs.MayList(path) &&
         IsUncommitted(fs.List(path));
}

// Without slashes at the end, so that the last part is a name.
std::string Clean(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) {
    path.pop_back();
  }
  return path;
}

std::string NameOf(const std::string& path) {
  return std::filesystem::path(Clean(path)).filename().string();
}

std::string Trim(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) {
    return "";
  }
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string ListForHumans(const std::vector<std::string>& tags) {
  return tags.empty() ? "there is none" : JoinNames(tags, kMaxListed);
}

bool IsRoot(FileSystem& fs, const std::string& path) {
  return fs.Stat(path + "/latest").has_value() ||
         fs.ReadLink(path + "/latest").has_value() || !TagsOf(fs, path).empty();
}

// Folders below a path that are roots, breadth first; a root is not searched.
class RootSearch {
 public:
  explicit RootSearch(FileSystem& fs) : fs_(fs) {}

  std::vector<std::string> Run(const std::string& path) {
    std::vector<std::string> level = {path};
    for (int depth = 0; depth < kSearchDepth && !level.empty(); ++depth) {
      std::vector<std::string> next;
      for (const std::string& folder : level) {
        LookInto(folder, next);
      }
      level = std::move(next);
    }
    return std::move(roots_);
  }

 private:
  void LookInto(const std::string& folder, std::vector<std::string>& next) {
    for (const std::string& name : fs_.List(folder)) {
      std::string child = StrCat(folder, "/", name);
      if (++seen_ > kSearchFolders || !IsDirectory(fs_, child) ||
          !fs_.MayList(child)) {
        continue;
      }
      auto& list = IsRoot(fs_, child) ? roots_ : next;
      list.push_back(std::move(child));
    }
  }

  FileSystem& fs_;
  size_t seen_ = 0;
  std::vector<std::string> roots_;
};

bool HasSuffix(const std::vector<std::string>& names, std::string_view suffix) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.ends_with(suffix);
  });
}

// The format of a folder that holds no DeepSpeed root, for the message.
std::string OtherFormat(FileSystem& fs, const std::string& path) {
  const std::vector<std::string> names = fs.List(path);
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (has(".metadata") || HasSuffix(names, ".distcp")) {
    return "a PyTorch distributed checkpoint (DCP) is not supported";
  }
  if (has("latest_universal") ||
      fs.Stat(path + "/zero/optimizer_state.pt").has_value()) {
    return "a DeepSpeed universal checkpoint is not supported";
  }
  if (HasSuffix(names, ".safetensors")) {
    return "safetensors files are not supported";
  }
  const std::vector<std::string> uncommitted = UncommittedTagsOf(fs, path);
  if (!uncommitted.empty()) {
    return StrCat(
        "there is no checkpoint here, only what native saves left that never "
        "committed (no manifest.json): ",
        Printable(JoinNames(uncommitted, kMaxListed)),
        "; the next save into this root removes it");
  }
  return "there is no checkpoint here: expected a folder with tags such as "
         "global_step100, one tag's folder, or a torch.save file";
}

std::string FindRoot(FileSystem& fs, const std::string& path) {
  if (IsRoot(fs, path)) {
    return path;
  }
  const std::vector<std::string> roots = RootSearch(fs).Run(path);
  if (roots.size() == 1) {
    return roots[0];
  }
  if (roots.empty()) {
    throw Error(ErrorCode::kUnsupported, OtherFormat(fs, path), {.file = path});
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("the folder holds several checkpoints; name one of: ",
                     JoinNames(roots, kMaxListed)),
              {.file = path});
}

void RequirePlainTag(const std::string& root, const std::string& tag,
                     ErrorCode code) {
  const std::filesystem::path path(tag);
  const bool leaves =
      path.is_absolute() || tag.find('\0') != std::string::npos ||
      std::any_of(path.begin(), path.end(),
                  [](const auto& part) { return part == ".."; });
  if (leaves) {
    throw Error(code, "the tag leaves the root",
                {.file = root, .found = Printable(tag)});
  }
}

// "./step2/" is step2.
std::string PlainName(const std::string& name) {
  return Clean(std::filesystem::path(name).lexically_normal().string());
}

// The tag that a link in the root leads to.
std::string NameInRoot(const std::string& root, const std::string& target) {
  const std::filesystem::path folder = std::filesystem::absolute(root);
  const std::filesystem::path path =
      (folder / Clean(target)).lexically_normal();
  if (path.parent_path() != (folder / "").lexically_normal().parent_path()) {
    throw Error(ErrorCode::kDataLoss,
                "leads out of the folder of tags; let it name one of them",
                {.file = root + "/latest", .found = Printable(target)});
  }
  return path.filename().string();
}

// LatestOf, whose errors tell the user the way out.
std::string UsableLatest(FileSystem& fs, const std::string& root,
                         const std::vector<std::string>& tags) {
  try {
    return LatestOf(fs, root);
  } catch (const Error& error) {
    throw Error(error.code(),
                StrCat(error.message(),
                       "; pick a tag with --tag: ", ListForHumans(tags)),
                error.place());
  }
}

std::string PickTag(FileSystem& fs, const std::string& root) {
  const std::vector<std::string> tags = TagsOf(fs, root);
  std::string latest = UsableLatest(fs, root, tags);
  if (!latest.empty()) {
    RequirePlainTag(root + "/latest", latest, ErrorCode::kDataLoss);
    if (!IsDirectory(fs, root + "/" + latest)) {
      throw Error(ErrorCode::kDataLoss,
                  StrCat("latest names the tag ", Printable(latest),
                         ", which does not exist; pick one with --tag: ",
                         ListForHumans(tags)),
                  {.file = root + "/latest"});
    }
    return latest;
  }
  if (tags.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("there is no file latest; pick a tag with --tag: ",
                       ListForHumans(tags)),
                {.file = root});
  }
  return tags[0];
}

}  // namespace

Location::Kind KindOfTag(FileSystem& fs, const std::string& path) {
  const std::vector<std::string> names = fs.List(path);
  return native::IsTagDirectory(names) || IsUncommitted(names)
             ? Location::Kind::kNativeTag
             : Location::Kind::kDeepSpeedTag;
}

std::vector<std::string> TagsOf(FileSystem& fs, const std::string& root) {
  std::vector<std::string> tags;
  for (const std::string& name : fs.List(root)) {
    const std::string path = StrCat(root, "/", name);
    // A link `latest` is a pointer, not a tag.
    const bool is_pointer = name == "latest" && fs.ReadLink(path);
    if (!is_pointer && fs.MayList(path) && IsTagPath(fs, path)) {
      tags.push_back(name);
    }
  }
  return tags;
}

std::vector<std::string> UncommittedTagsOf(FileSystem& fs,
                                           const std::string& root) {
  std::vector<std::string> names = fs.List(root);
  std::erase_if(names, [&](const std::string& name) {
    const std::string path = StrCat(root, "/", name);
    return fs.ReadLink(path) || !IsUncommittedPath(fs, path);
  });
  return names;
}

std::string LatestOf(FileSystem& fs, const std::string& root) {
  const std::string path = root + "/latest";
  const auto status = fs.Stat(path);
  if (status && status->size_bytes > kMaxLatestBytes &&
      status->type == FileType::kRegular) {
    throw Error(ErrorCode::kDataLoss, "too large to be the name of a tag",
                {.file = path, .found = StrCat(status->size_bytes, " bytes")});
  }
  if (status && status->type == FileType::kRegular) {
    std::string name = Trim(ReadSmallFile(fs, path, kMaxLatestBytes));
    if (name.empty() || name.find('\0') != std::string::npos) {
      throw Error(ErrorCode::kDataLoss, "the file names no tag",
                  {.file = path,
                   .found = name.empty() ? "white space" : Printable(name)});
    }
    return PlainName(name);
  }
  if (const auto target = fs.ReadLink(path)) {
    return NameInRoot(root, *target);
  }
  // A directory may be a tag of that name.
  if (status && !IsTagPath(fs, path)) {
    throw Error(
        ErrorCode::kDataLoss, "neither a file that names a tag nor a tag",
        {.file = path,
         .found = status->type == FileType::kDirectory ? "a directory"
                                                       : "a special file"});
  }
  return "";
}

std::string NameOfTagAt(FileSystem& fs, const std::string& path) {
  const bool is_tag = IsTagPath(fs, path) || IsUncommittedPath(fs, path);
  return is_tag ? NameOf(path) : "";
}

std::string LocateRoot(FileSystem& fs, const std::string& path) {
  if (!fs.Stat(path)) {
    throw Error(ErrorCode::kNotFound, "no such file or directory",
                {.file = path});
  }
  if (!IsDirectory(fs, path)) {
    throw Error(ErrorCode::kInvalidArgument,
                "a file has no tags; name a folder", {.file = path});
  }
  if (IsTagPath(fs, path) || IsUncommittedPath(fs, path)) {
    const auto parent =
        std::filesystem::path(path + "/..").lexically_normal().string();
    return parent.empty() ? "." : Clean(parent);
  }
  return FindRoot(fs, path);
}

Location Locate(FileSystem& fs, const std::string& path,
                const std::string& tag) {
  const auto status = fs.Stat(path);
  if (!status) {
    throw Error(ErrorCode::kNotFound, "no such file or directory",
                {.file = path});
  }
  const bool is_tag = IsTagPath(fs, path) || IsUncommittedPath(fs, path);
  if (is_tag || status->type != FileType::kDirectory) {
    if (!tag.empty() && tag != NameOf(path)) {
      throw Error(
          ErrorCode::kInvalidArgument,
          StrCat("the path is not a folder of tags, so there is no tag ",
                 Printable(tag), " in it"),
          {.file = path});
    }
    return {.kind = is_tag ? KindOfTag(fs, path) : Location::Kind::kTorchFile,
            .path = Clean(path)};
  }
  const std::string root = FindRoot(fs, Clean(path));
  std::string name = tag;
  if (name.empty()) {
    name = PickTag(fs, root);
  }
  RequirePlainTag(root, name, ErrorCode::kInvalidArgument);
  if (!IsDirectory(fs, root + "/" + name)) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("there is no tag ", Printable(name),
                       "; the tags are: ", ListForHumans(TagsOf(fs, root))),
                {.file = root});
  }
  std::string found = root + "/" + name;
  const Location::Kind kind = KindOfTag(fs, found);
  return {.kind = kind, .path = std::move(found)};
}

}  // namespace muonstore
