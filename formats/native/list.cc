#include "formats/native/list.h"

#include <filesystem>
#include <utility>

#include "formats/native/tag_files.h"

namespace muonstore::native {

TagListing ListTag(std::shared_ptr<FileSystem> fs,
                   const std::string& directory) {
  TagListing listing;
  listing.tag = std::filesystem::path(directory).filename().string();
  try {
    const TagFiles tag = OpenTagFiles(std::move(fs), directory);
    listing.step = tag.manifest.info.step;
    listing.stage = tag.manifest.info.stage;
    listing.num_ranks = tag.layout->num_ranks();
    listing.size_bytes = tag.size_bytes;
    listing.modified_ns = tag.modified_ns;
    for (const Error& problem : tag.problems) {
      listing.missing.emplace_back(problem.what());
    }
  } catch (const Error& error) {
    listing.missing.emplace_back(error.what());
  }
  listing.complete = listing.missing.empty();
  listing.sizes_proven = listing.complete;
  return listing;
}

}  // namespace muonstore::native
