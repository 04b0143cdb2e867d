// Which checkpoint a path means.
#ifndef MUONSTORE_CONVERTERS_LOCATE_H_
#define MUONSTORE_CONVERTERS_LOCATE_H_

#include <string>
#include <vector>

#include "muonstore/file_system.h"

namespace muonstore {

struct Location {
  enum class Kind { kDeepSpeedTag, kNativeTag, kTorchFile };
  Kind kind = Kind::kDeepSpeedTag;
  std::string path;  // The tag directory or the file.
};

// What a tag's folder holds; a folder that holds none is a DeepSpeed tag, whose
// reader says what is missing, as that of native tags does of one without a
// manifest.
Location::Kind KindOfTag(FileSystem& fs, const std::string& path);

// Finds the tag directory or file behind `path`: see muonstore/open.h. `tag`
// may be empty.
Location Locate(FileSystem& fs, const std::string& path,
                const std::string& tag);

// The name of the tag that `path` itself is, whole or not; empty: it is none.
std::string NameOfTagAt(FileSystem& fs, const std::string& path);

// The root (folder of tags) behind `path`; of a tag directory, its parent.
std::string LocateRoot(FileSystem& fs, const std::string& path);

// Names of the tag directories in a root, by text.
std::vector<std::string> TagsOf(FileSystem& fs, const std::string& root);

// Names of the folders in a root that native saves left without a manifest.
std::vector<std::string> UncommittedTagsOf(FileSystem& fs,
                                           const std::string& root);

// What `latest` of a root names: the text of a file without white space at the
// ends, or where a link points. Empty: there is no `latest`. Error(kDataLoss):
// there is something that names no tag.
std::string LatestOf(FileSystem& fs, const std::string& root);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_LOCATE_H_
