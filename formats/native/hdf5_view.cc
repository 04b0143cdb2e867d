#include "formats/native/hdf5_view.h"

#include <array>
#include <map>
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

// Keeps what many datasets share: making properties and opening groups costs
// more than the datasets themselves.
class ViewMaker {
 public:
  ViewMaker(const Manifest& manifest, const Layout& layout, const Handle& file)
      : manifest_(manifest), layout_(layout), state_(GroupIn(file, "state")) {}

  void Add(const ManifestTensor& entry) {
    const CheckpointTensor& tensor = entry.tensor;
    const Handle& type = TypeOf(tensor.dtype);
    const Handle properties = DatasetProperties();
    SetFill(properties, type, tensor.dtype);
    for (const Fragment& fragment : layout_.present_fragments(entry)) {
      Map(properties, tensor.shape, fragment);
    }
    const std::string name = EscapePathPart(tensor.key.parameter);
    const Handle dataset(
        H5Dcreate2(GroupOf(tensor.key.kind).get(), name.c_str(), type.get(),
                   SpaceOf(tensor.shape.dims()).get(), links_.get(),
                   properties.get(), H5P_DEFAULT),
        H5Dclose, "create a virtual dataset");
    WriteAttribute(dataset.get(), "name", tensor.key.parameter);
    WriteAttribute(dataset.get(), "kind", tensor.key.kind);
    WriteAttribute(dataset.get(), "dtype", DTypeName(tensor.dtype));
  }

 private:
  const Handle& TypeOf(DType dtype) {
    const auto it = types_.find(dtype);
    return it != types_.end()
               ? it->second
               : types_.emplace(dtype, Hdf5Type(dtype)).first->second;
  }

  const Handle& GroupOf(const StateKind& kind) {
    const auto it = groups_.find(kind);
    return it != groups_.end()
               ? it->second
               : groups_.emplace(kind, GroupIn(state_, EscapePathPart(kind)))
                     .first->second;
  }

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
  Handle state_;
  Handle links_ = LinkProperties();
  std::map<DType, Handle> types_;
  std::map<StateKind, Handle> groups_;
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
  ImageFile file(image);
  WriteAttribute(file.handle().get(), "muonstore_view", int64_t{1});
  WriteAttribute(file.handle().get(), "save_id", manifest.save_id);
  {
    ViewMaker maker(manifest, layout, file.handle());
    for (const ManifestTensor& entry : manifest.tensors) {
      if (!entry.tensor.derived) {
        maker.Add(entry);
      }
    }
  }
  file.Close();
  return image;
}

}  // namespace muonstore::native
