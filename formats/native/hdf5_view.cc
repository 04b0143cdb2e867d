#include "formats/native/hdf5_view.h"

#include <array>
#include <vector>

#include "formats/native/boxes.h"
#include "formats/native/file_names.h"
#include "formats/native/hdf5_driver.h"
#include "formats/native/hdf5_handle.h"
#include "formats/native/hdf5_rank_file.h"
#include "formats/native/hdf5_types.h"
#include "formats/native/text.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

// What an object header holds with room to spare.
constexpr size_t kMaxPartBytes = 16384;

std::vector<hsize_t> ToHsize(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

Handle SpaceOf(const std::vector<int64_t>& dims) {
  const std::vector<hsize_t> sizes = ToHsize(dims);
  return {dims.empty() ? H5Screate(H5S_SCALAR)
                       : H5Screate_simple(static_cast<int>(sizes.size()),
                                          sizes.data(), nullptr),
          H5Sclose, "make a space"};
}

void Select(const Handle& space, const Box& box) {
  if (box.start.empty()) {
    return;  // A scalar is selected as it is.
  }
  Check(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET,
                            ToHsize(box.start).data(), nullptr,
                            ToHsize(box.count).data(), nullptr),
        "select a part");
}

// Elements that no file gives have every bit set: NaN for each float type that
// is not of the "fnuz" kind, whose NaN is 0x80.
void SetFill(const Handle& properties, const Handle& type, DType dtype) {
  constexpr size_t kMaxElementBytes = 16;
  std::array<unsigned char, kMaxElementBytes> fill{};
  fill.fill(0xFF);
  if (dtype == DType::kF8E4M3FNUZ || dtype == DType::kF8E5M2FNUZ) {
    fill.fill(0x80);
  }
  Check(H5Pset_fill_value(properties.get(), type.get(), fill.data()),
        "set the fill value");
}

class ViewMaker {
 public:
  ViewMaker(const Manifest& manifest, const Layout& layout)
      : manifest_(manifest), layout_(layout) {}

  void Add(const Handle& file, const ManifestTensor& entry) const {
    const CheckpointTensor& tensor = entry.tensor;
    const Handle type = Hdf5Type(tensor.dtype);
    const Handle properties = DatasetProperties();
    SetFill(properties, type, tensor.dtype);
    for (const Fragment& fragment : layout_.present_fragments(entry)) {
      Map(properties, tensor.shape, fragment);
    }
    const Handle group =
        GroupIn(GroupIn(file, "state"), EscapePathPart(tensor.key.kind));
    const std::string name = EscapePathPart(tensor.key.parameter);
    const Handle dataset(
        H5Dcreate2(group.get(), name.c_str(), type.get(),
                   SpaceOf(tensor.shape.dims()).get(), LinkProperties().get(),
                   properties.get(), H5P_DEFAULT),
        H5Dclose, "create a virtual dataset");
    WriteAttribute(dataset.get(), "name", tensor.key.parameter);
    WriteAttribute(dataset.get(), "kind", tensor.key.kind);
    WriteAttribute(dataset.get(), "dtype", DTypeName(tensor.dtype));
  }

 private:
  void Map(const Handle& properties, const Shape& shape,
           const Fragment& fragment) const {
    const auto segment = static_cast<size_t>(fragment.segment);
    const int32_t slot = layout_.slots()[segment];
    const std::string file =
        RankFileName(layout_.segments()[segment].rank, manifest_.save_id);
    const std::string path =
        StrCat("/", kSegmentsGroup, "/", DatasetName(slot));
    const Handle source = SpaceOf({DatasetElements(
        manifest_.slots[static_cast<size_t>(slot)], manifest_.compressed)});
    const Handle target = SpaceOf(shape.dims());
    int64_t at = fragment.segment_offset;
    for (const Box& box :
         BoxesOf(shape, {fragment.tensor_offset,
                         fragment.tensor_offset + fragment.length})) {
      int64_t count = 1;
      for (const int64_t extent : box.count) {
        count *= extent;
      }
      Select(target, box);
      Select(source, {{at}, {count}});
      Check(H5Pset_virtual(properties.get(), target.get(), file.c_str(),
                           path.c_str(), source.get()),
            "map a part");
      at += count;
    }
  }

  const Manifest& manifest_;
  const Layout& layout_;
};

}  // namespace

std::string WhyNoView(const Manifest& manifest, const Layout& layout,
                      int64_t max_mappings) {
  int64_t mappings = 0;
  for (const ManifestTensor& entry : manifest.tensors) {
    const CheckpointTensor& tensor = entry.tensor;
    if (tensor.derived) {
      continue;
    }
    if (tensor.shape.rank() > H5S_MAX_RANK) {
      return StrCat("a tensor has more than ", H5S_MAX_RANK, " dimensions");
    }
    if (EscapePathPart(tensor.key.parameter).size() > kMaxPartBytes ||
        EscapePathPart(tensor.key.kind).size() > kMaxPartBytes) {
      return StrCat("a name is longer than ", kMaxPartBytes, " bytes");
    }
    for (const Fragment& fragment : layout.present_fragments(entry)) {
      const auto boxes = BoxesOf(
          tensor.shape,
          {fragment.tensor_offset, fragment.tensor_offset + fragment.length});
      mappings += static_cast<int64_t>(boxes.size());
    }
    if (mappings > max_mappings) {
      return StrCat("more than ", max_mappings, " mappings");
    }
  }
  return {};
}

Hdf5Image MakeView(const Manifest& manifest, const Layout& layout) {
  const Hdf5Scope scope;
  Hdf5Image image(0, 0);
  Handle file = CreateFileInImage(image);
  WriteAttribute(file.get(), "muonstore_view", int64_t{1});
  WriteAttribute(file.get(), "save_id", manifest.save_id);
  const ViewMaker maker(manifest, layout);
  for (const ManifestTensor& entry : manifest.tensors) {
    if (!entry.tensor.derived) {
      maker.Add(file, entry);
    }
  }
  file.Close("finish a file");
  return image;
}

}  // namespace muonstore::native
