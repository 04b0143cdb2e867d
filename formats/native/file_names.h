// The file names of a native tag directory.
#ifndef MUONSTORE_FORMATS_NATIVE_FILE_NAMES_H_
#define MUONSTORE_FORMATS_NATIVE_FILE_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muonstore::native {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kViewName = "checkpoint.h5";

// Every other file carries the id of the save that wrote it: 16 hexadecimal
// digits.
std::string RankFileName(int32_t rank, std::string_view save_id);
std::string CarriedFileName(int32_t rank, std::string_view save_id);
std::string ChecksumsName(std::string_view save_id);
// Names that the manifest and the view have until they are committed.
std::string StagedManifestName(std::string_view save_id);
std::string StagedViewName(std::string_view save_id);

// The save id in the name of such a file; empty for every other name, those of
// the committed manifest and view included.
std::string SaveIdOf(std::string_view name);

// True if the names are those of a native tag: a manifest and at least one file
// with a save id.
bool IsTagDirectory(const std::vector<std::string>& names);
// Those of a save without a manifest: it never committed, or lost it.
bool IsUncommittedTag(const std::vector<std::string>& names);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_FILE_NAMES_H_
