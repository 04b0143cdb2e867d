#include "formats/native/hdf5_rank_file.h"

#include <algorithm>

#include "formats/native/hdf5_driver.h"
#include "formats/native/hdf5_handle.h"
#include "formats/native/hdf5_types.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

constexpr H5Z_filter_t kZstdFilter = 32015;

// Elements of one chunk; a segment smaller than a block is one chunk.
hsize_t ChunkElements(const SegmentPlace& place, uint64_t block_bytes) {
  const auto element = static_cast<uint64_t>(SizeBytes(place.what.dtype));
  return std::min(block_bytes / element,
                  static_cast<uint64_t>(place.what.num_elements));
}

Handle Properties(const RankFileContent& content, const SegmentPlace& place) {
  Handle properties = DatasetProperties();
  Check(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER),
        "switch off filling");
  if (!content.compressed) {
    Check(H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY),
          "place a dataset");
    return properties;
  }
  const hsize_t chunk = ChunkElements(place, content.block_bytes);
  Check(H5Pset_chunk(properties.get(), 1, &chunk), "set the chunk size");
  Check(H5Pset_shuffle(properties.get()), "set a filter");
  // Optional for the writer alone: libhdf5 does not run it here.
  const auto level = static_cast<unsigned>(content.zstd_level);
  Check(H5Pset_filter(properties.get(), kZstdFilter, H5Z_FLAG_OPTIONAL, 1,
                      &level),
        "set a filter");
  return properties;
}

// Tells libhdf5 where the chunks are; the bytes are in the payload already.
void PlaceChunks(const Handle& dataset, const RankFileContent& content,
                 const SegmentPlace& place, Hdf5Image& image) {
  const hsize_t chunk = ChunkElements(place, content.block_bytes);
  hsize_t first = 0;
  for (const Block& block : place.blocks) {
    image.PlaceNextRaw(block.offset_bytes, block.stored_bytes);
    // The driver drops bytes of the payload without looking at them.
    const char unread = 0;
    Check(H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, 0, &first,
                         block.stored_bytes, &unread),
          "place a chunk");
    first += chunk;
  }
}

void Describe(const Handle& dataset, const SegmentPlace& place) {
  const Slot& slot = place.what;
  WriteAttribute(dataset.get(), "num_elements", slot.num_elements);
  WriteAttribute(dataset.get(), "kind", slot.kind);
  WriteAttribute(dataset.get(), "dtype", DTypeName(slot.dtype));
  if (slot.flat_group >= 0) {
    WriteAttribute(dataset.get(), "flat_group", int64_t{slot.flat_group});
  } else {
    WriteAttribute(dataset.get(), "name", place.name);
  }
}

void AddSegment(const Handle& group, const RankFileContent& content,
                const SegmentPlace& place, Hdf5Image& image) {
  const auto elements =
      static_cast<hsize_t>(DatasetElements(place.what, content.compressed));
  const Handle space(H5Screate_simple(1, &elements, nullptr), H5Sclose,
                     "make a space");
  const uint64_t offset = place.blocks.front().offset_bytes;
  if (!content.compressed) {
    image.PlaceNextRaw(
        offset, elements * static_cast<uint64_t>(SizeBytes(place.what.dtype)));
  }
  const Handle dataset(
      H5Dcreate2(group.get(), DatasetName(place.slot).c_str(),
                 Hdf5Type(place.what.dtype).get(), space.get(),
                 LinkProperties().get(), Properties(content, place).get(),
                 H5P_DEFAULT),
      H5Dclose, "create a dataset");
  if (content.compressed) {
    PlaceChunks(dataset, content, place, image);
  } else if (H5Dget_offset(dataset.get()) != offset) {
    throw Error(ErrorCode::kInternal, "HDF5 placed a dataset elsewhere");
  }
  Describe(dataset, place);
}

}  // namespace

std::string DatasetName(int32_t slot) {
  constexpr size_t kDigits = 5;
  std::string number = StrCat(slot);
  number.insert(0, kDigits - std::min(kDigits, number.size()), '0');
  return number;
}

int64_t DatasetElements(const Slot& slot, bool compressed) {
  if (compressed) {
    return slot.num_elements;
  }
  const int64_t per_page =
      static_cast<int64_t>(kPageBytes) / SizeBytes(slot.dtype);
  const int64_t pages = slot.num_elements / per_page +
                        (slot.num_elements % per_page != 0 ? 1 : 0);
  return pages * per_page;
}

Hdf5Image MakeRankFile(const RankFileContent& content) {
  const Hdf5Scope scope;
  Hdf5Image image(kPageBytes, content.payload_end);
  ImageFile file(image);
  WriteAttribute(file.handle().get(), "muonstore_rank_file", int64_t{1});
  WriteAttribute(file.handle().get(), "rank", int64_t{content.rank});
  WriteAttribute(file.handle().get(), "save_id", content.save_id);
  {
    const Handle group = GroupIn(file.handle(), kSegmentsGroup);
    for (const SegmentPlace& place : content.segments) {
      AddSegment(group, content, place, image);
    }
  }
  file.Close();
  return image;
}

}  // namespace muonstore::native
