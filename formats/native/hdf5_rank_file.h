// Makes an HDF5 file around a rank's payload.
#ifndef MUONSTORE_FORMATS_NATIVE_HDF5_RANK_FILE_H_
#define MUONSTORE_FORMATS_NATIVE_HDF5_RANK_FILE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/native/block_table.h"
#include "formats/native/hdf5_image.h"
#include "formats/native/manifest.h"

namespace muonstore::native {

// A segment's dataset in its rank's file: "00003" for slot 3.
inline constexpr const char* kSegmentsGroup = "segments";
std::string DatasetName(int32_t slot);
// Elements of its dataset: padded to whole pages where it is not compressed.
int64_t DatasetElements(const Slot& slot, bool compressed);

struct SegmentPlace {
  int32_t slot = 0;
  Slot what;
  std::string name;  // Of a single tensor; empty for a flat group's.
  std::span<const Block> blocks;
};

struct RankFileContent {
  int32_t rank = 0;
  std::string_view save_id;
  bool compressed = false;
  int zstd_level = 0;
  uint64_t block_bytes = 0;
  uint64_t payload_end = 0;  // The payload is [kPageBytes, payload_end).
  std::vector<SegmentPlace> segments;
};

// Everything but the payload; its size is that of the file.
Hdf5Image MakeRankFile(const RankFileContent& content);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HDF5_RANK_FILE_H_
