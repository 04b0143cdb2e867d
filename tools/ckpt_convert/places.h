// From where to where a conversion goes.
//
// What: the target's tag directory, checked against the source, so that nothing
//   that is read is ever replaced.
// Failures: Error(kInvalidArgument) where the two are in each other's way.

#ifndef MUONSTORE_TOOLS_CKPT_CONVERT_PLACES_H_
#define MUONSTORE_TOOLS_CKPT_CONVERT_PLACES_H_

#include <string>

#include "muonstore/checkpoint.h"

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

}  // namespace muonstore::tools

#endif  // MUONSTORE_TOOLS_CKPT_CONVERT_PLACES_H_
