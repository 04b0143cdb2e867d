// CutIntoBoxes: from a range of a view to boxes in storage order.

#include <algorithm>

#include "formats/torchfile/strided_read.h"

namespace muonstore::torchfile {
namespace {

// Storage strides descending, ones dropped, axes that continue each other on
// both sides merged.
void Normalize(std::vector<ViewBox::Axis>& axes) {
  std::erase_if(axes, [](const ViewBox::Axis& a) { return a.size == 1; });
  std::stable_sort(axes.begin(), axes.end(),
                   [](const ViewBox::Axis& a, const ViewBox::Axis& b) {
                     return a.storage_stride > b.storage_stride;
                   });
  std::vector<ViewBox::Axis> merged;
  for (const ViewBox::Axis& inner : axes) {
    const bool continues =
        !merged.empty() &&
        merged.back().storage_stride == inner.storage_stride * inner.size &&
        merged.back().out_stride == inner.out_stride * inner.size;
    if (continues) {
      merged.back() = {merged.back().size * inner.size, inner.storage_stride,
                       inner.out_stride};
    } else {
      merged.push_back(inner);
    }
  }
  axes = std::move(merged);
}

}  // namespace

std::vector<ViewBox> CutIntoBoxes(const TensorInfo& tensor, int64_t first,
                                  int64_t count) {
  const std::vector<int64_t>& dims = tensor.shape.dims();
  const size_t rank = dims.size();
  std::vector<int64_t> block(rank + 1, 1);  // Elements of one step of an axis.
  for (size_t d = rank; d-- > 0;) {
    block[d] = block[d + 1] * dims[d];
  }
  std::vector<ViewBox> boxes;
  for (int64_t at = first; at < first + count;) {
    const int64_t left = first + count - at;
    // The outermost axis of which whole steps begin here and fit.
    size_t axis = rank;
    while (axis > 0 && at % block[axis] == 0 && block[axis] <= left) {
      --axis;
    }
    ViewBox box{.storage_offset = tensor.storage_offset,
                .out_offset = at - first};
    for (size_t d = 0; d < rank; ++d) {
      box.storage_offset += at / block[d + 1] % dims[d] * tensor.strides[d];
    }
    int64_t covered = 1;
    if (axis < rank) {
      const int64_t index = at / block[axis + 1] % dims[axis];
      const int64_t steps =
          std::min(dims[axis] - index, left / block[axis + 1]);
      box.axes.push_back({steps, tensor.strides[axis], block[axis + 1]});
      for (size_t d = axis + 1; d < rank; ++d) {
        box.axes.push_back({dims[d], tensor.strides[d], block[d + 1]});
      }
      covered = steps * block[axis + 1];
    }
    Normalize(box.axes);
    boxes.push_back(std::move(box));
    at += covered;
  }
  return boxes;
}

}  // namespace muonstore::torchfile
