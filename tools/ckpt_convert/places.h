// From where to where a conversion goes.
//
// What: the target's tag directory, checked against the source, so that nothing
//   that is read is ever replaced; and the files beside the source's tag.
// Failures: Error(kInvalidArgument) where the two are in each other's way.

#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_PLACES_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_PLACES_H_

#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"
#include "src/os/output_root.h"

namespace muonstore::tools {

struct Places {
  std::string source_root;  // Empty for a single file.
  std::string source_path;  // The tag directory or file.
  std::string target_root;
  std::string tag;  // In the target.
  bool same_root = false;

  std::string target_path() const { return target_root + "/" + tag; }
};

// `out_tag` may be empty: the source's tag; of a file, its name without the
// ending.
Places FindPlaces(const CheckpointInfo& source, const std::string& target,
                  const std::string& out_tag);

// Names of the regular files beside the source's tag, without `latest`.
std::vector<std::string> FilesBeside(FileSystem& fs, const Places& places);

// Copies them into the target's root; those that are there already stay.
// Returns the names that were copied.
std::vector<std::string> CarryFiles(os::OutputRoot& root, const Places& places,
                                    const std::vector<std::string>& names);

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_PLACES_H_
