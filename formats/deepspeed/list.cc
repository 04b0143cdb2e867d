#include "formats/deepspeed/list.h"

#include <filesystem>
#include <utility>

#include "formats/deepspeed/parts.h"

namespace muonstore::deepspeed {

TagListing ListTag(std::shared_ptr<FileSystem> fs, const std::string& path) {
  const Parts parts = LoadParts(std::move(fs), path, /*rank_zero_only=*/true);
  TagListing listing;
  listing.tag = std::filesystem::path(path).filename().string();
  if (parts.model) {
    listing.step = parts.model->global_steps;
  }
  if (!parts.ranks.empty()) {
    listing.stage = parts.ranks[0].stage;
  }
  listing.num_ranks = parts.directory.num_ranks();
  listing.size_bytes = parts.directory.size_bytes;
  listing.modified_ns = parts.directory.modified_ns;
  for (const Error& problem : parts.problems) {
    listing.missing.emplace_back(problem.what());
  }
  listing.complete = listing.missing.empty();
  return listing;
}

}  // namespace muonstore::deepspeed
