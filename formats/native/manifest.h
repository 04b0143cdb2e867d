// What `manifest.json` says, as plain values; README.md has the fields.
#ifndef MUONSTORE_FORMATS_NATIVE_MANIFEST_H_
#define MUONSTORE_FORMATS_NATIVE_MANIFEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muonstore/checkpoint.h"
#include "muonstore/parameter.h"
#include "muonstore/partitioning.h"

namespace muonstore::native {

inline constexpr uint64_t kDefaultBlockBytes = 4 << 20;
inline constexpr uint64_t kPageBytes = 4096;

// A file that belongs to the checkpoint as a whole; its name follows from what
// it is.
struct FileDigest {
  uint64_t size_bytes = 0;
  uint64_t digest = 0;  // XXH3-64 of all its bytes.
};

// A segment of every rank, or of one: the ranks' parts of a flat group's state
// kind, or one tensor that is in no flat group.
struct Slot {
  StateKind kind;
  DType dtype = DType::kF32;
  int32_t flat_group = -1;  // -1: one tensor, on `rank` alone.
  int32_t rank = 0;
  int64_t num_elements = 0;  // On each rank; at least 1.
};

struct ManifestTensor {
  CheckpointTensor tensor;
  int32_t parameter = -1;  // Of Manifest::parameters; -1: none of them.
  int32_t slot = -1;       // -1: it has no elements.
};

struct RankFile {
  uint64_t size_bytes = 0;
  uint64_t head_digest = 0;               // Of the first page.
  uint64_t tail_offset = 0;               // Where the payload ends.
  uint64_t tail_digest = 0;               // From there to the end.
  std::vector<uint64_t> segment_offsets;  // In the order of the segments.
};

struct Manifest {
  std::string save_id;
  uint64_t digest = 0;  // Of its text, where it was read.
  std::string source;   // What it was converted from: "DeepSpeed 0.19.8".
  bool compressed = false;
  uint64_t block_bytes = kDefaultBlockBytes;
  // Without what depends on the place: path, tag, sizes.
  CheckpointInfo info;
  ZeroRule rule;
  std::vector<FlatGroup> flat_groups;
  std::vector<ParameterSpec> parameters;  // Those that the rule cuts.
  std::vector<Slot> slots;                // Those of flat groups come first.
  std::vector<ManifestTensor> tensors;
  std::vector<RankFile> files;  // By rank.
  FileDigest checksums;
  // The file for other tools; absent: `view_omitted` says why.
  std::optional<FileDigest> view;
  std::string view_omitted;
  std::vector<FileDigest> carried;  // By rank of the source.
};

// The whole text, with its own digest at the end.
std::string WriteManifest(const Manifest& manifest);

// Error(kDataLoss) for a changed byte and for anything that WriteManifest does
// not write; Error(kUnsupported) for a later version. The values are in range
// one by one; that they fit each other is checked by Layout.
Manifest ParseManifest(const std::string& text);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_MANIFEST_H_
