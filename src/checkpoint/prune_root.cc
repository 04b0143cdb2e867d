#include "src/checkpoint/prune_root.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>

#include "converters/locate.h"
#include "formats/deepspeed/list.h"
#include "formats/native/list.h"
#include "formats/native/remove_tag.h"
#include "muonstore/error.h"
#include "muonstore/prune.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

struct Candidate {
  TagListing listing;
  bool is_native = true;
};

// Whole tags, the newest first.
std::vector<Candidate> WholeTags(os::OutputRoot& root, bool other_formats) {
  std::vector<Candidate> tags;
  for (const std::string& tag : TagsOf(root.fs(), root.path())) {
    const std::string folder = StrCat(root.path(), "/", tag);
    // A second name of what may be a tag of this root, or is not in it.
    if (root.fs().ReadLink(folder)) continue;
    const bool is_native =
        KindOfTag(root.fs(), folder) == Location::Kind::kNativeTag;
    if (!is_native && !other_formats) continue;
    Candidate candidate{
        .listing = is_native ? native::ListTag(root.shared_fs(), folder)
                             : deepspeed::ListTag(root.shared_fs(), folder),
        .is_native = is_native};
    if (candidate.listing.complete) tags.push_back(std::move(candidate));
  }
  std::sort(tags.begin(), tags.end(),
            [](const Candidate& a, const Candidate& b) {
              const auto key = [](const TagListing& tag) {
                return std::tie(tag.step, tag.modified_ns, tag.tag);
              };
              return key(a.listing) > key(b.listing);
            });
  return tags;
}

std::string LatestOrNothing(os::OutputRoot& root) {
  try {
    return LatestOf(root.fs(), root.path());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDataLoss) throw;
    return {};
  }
}

// What links in the root lead to, `latest` among them, by whatever path.
std::set<std::string> NamesThatLinksUse(os::OutputRoot& root) {
  std::set<std::string> names;
  for (const std::string& name : root.fs().List(root.path())) {
    if (const auto target =
            root.fs().ReadLink(StrCat(root.path(), "/", name))) {
      names.insert((std::filesystem::path(*target) / "")
                       .lexically_normal()
                       .parent_path()
                       .filename()
                       .string());
    }
  }
  return names;
}

}  // namespace

std::vector<std::string> PruneRoot(os::OutputRoot& root,
                                   const PruneRootOptions& options) {
  if (options.keep < 1) {
    throw Error(ErrorCode::kInvalidArgument, "pruning keeps one tag or more",
                {.expected = "at least 1", .found = StrCat(options.keep)});
  }
  std::vector<Candidate> tags = WholeTags(root, options.other_formats);
  const auto keep = std::min(tags.size(), static_cast<size_t>(options.keep));
  tags.erase(tags.begin(), tags.begin() + static_cast<std::ptrdiff_t>(keep));
  std::set<std::string> used = NamesThatLinksUse(root);
  used.insert({LatestOrNothing(root), options.protect});
  std::vector<std::string> removed;
  // The oldest first.
  for (auto tag = tags.rbegin(); tag != tags.rend(); ++tag) {
    const std::string& name = tag->listing.tag;
    if (used.contains(name)) continue;
    if (tag->is_native) {
      native::RemoveTag(root, name);
    } else {
      os::RemoveDirectoryOf(root, name);
    }
    removed.push_back(name);
  }
  return removed;
}

std::vector<std::string> Prune(const std::shared_ptr<FileSystem>& fs,
                               const std::string& root,
                               const PruneOptions& options) {
  if (!fs->Stat(root)) {
    throw Error(ErrorCode::kNotFound, "there is no such folder",
                {.file = root});
  }
  os::OutputRoot locked(fs, root);
  return PruneRoot(
      locked, {.keep = options.keep, .other_formats = options.other_formats});
}

}  // namespace muonstore
