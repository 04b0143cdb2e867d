#include "formats/torchfile/strided_read.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace muonstore::torchfile {
namespace {

constexpr int64_t kWindowBytes = int64_t{1} << 20;
// Runs of at least this size are read straight into the output.
constexpr int64_t kDirectBytes = int64_t{16} << 10;
// Elements that lie further apart are not worth the bytes between them.
constexpr int64_t kMaxGapBytes = int64_t{16} << 10;

template <size_t kSize>
void CopyElements(const std::byte* from, int64_t from_stride, std::byte* to,
                  int64_t to_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, kSize);
  }
}

// Copies elements of `item` bytes; strides in bytes.
void CopyStrided(size_t item, const std::byte* from, int64_t from_stride,
                 std::byte* to, int64_t to_stride, int64_t count) {
  switch (item) {
    case 1:
      return CopyElements<1>(from, from_stride, to, to_stride, count);
    case 2:
      return CopyElements<2>(from, from_stride, to, to_stride, count);
    case 4:
      return CopyElements<4>(from, from_stride, to, to_stride, count);
    case 8:
      return CopyElements<8>(from, from_stride, to, to_stride, count);
    default:
      return CopyElements<16>(from, from_stride, to, to_stride, count);
  }
}

// Reads the axes of a box from the outermost on.
class BoxReader {
 public:
  BoxReader(RandomAccessFile& file, uint64_t offset_bytes, int64_t item,
            std::span<std::byte> out)
      : file_(file), offset_bytes_(offset_bytes), item_(item), out_(out) {}

  void Read(const ViewBox& box);

 private:
  using Axis = ViewBox::Axis;

  // One run: `axis` from storage element `from` to output element `to`.
  void ReadRun(const Axis& axis, int64_t from, int64_t to);
  void ReadDirect(const Axis& axis, int64_t from, int64_t to);
  // Makes the window hold element `from`; gives the end of what it holds.
  int64_t FillWindow(int64_t from);

  RandomAccessFile& file_;
  uint64_t offset_bytes_;
  int64_t item_;
  std::span<std::byte> out_;
  std::vector<std::byte> window_;
  int64_t window_begin_ = 0;  // In storage elements.
  int64_t window_end_ = 0;
  // Of the box: its end in the storage, and how far it pays to read on.
  int64_t box_end_ = 0;
  int64_t read_ahead_ = 1;
};

int64_t BoxReader::FillWindow(int64_t from) {
  if (from < window_begin_ || from >= window_end_) {
    const int64_t end = std::min(from + read_ahead_, box_end_);
    const int64_t count = std::min(end - from, kWindowBytes / item_);
    window_.resize(static_cast<size_t>(count * item_));
    file_.ReadAt(offset_bytes_ + static_cast<uint64_t>(from * item_), window_);
    window_begin_ = from;
    window_end_ = from + count;
  }
  return window_end_;
}

void BoxReader::ReadDirect(const Axis& axis, int64_t from, int64_t to) {
  file_.ReadAt(offset_bytes_ + static_cast<uint64_t>(from * item_),
               out_.subspan(static_cast<size_t>(to * item_),
                            static_cast<size_t>(axis.size * item_)));
}

void BoxReader::ReadRun(const Axis& axis, int64_t from, int64_t to) {
  if (axis.storage_stride == 1 && axis.out_stride == 1 &&
      axis.size * item_ >= kDirectBytes) {
    ReadDirect(axis, from, to);
    return;
  }
  for (int64_t done = 0; done < axis.size;) {
    const int64_t at = from + done * axis.storage_stride;
    const int64_t held = FillWindow(at) - at;
    const int64_t fits = axis.storage_stride == 0
                             ? axis.size
                             : (held - 1) / axis.storage_stride + 1;
    const int64_t count = std::min(axis.size - done, fits);
    CopyStrided(static_cast<size_t>(item_),
                window_.data() + (at - window_begin_) * item_,
                axis.storage_stride * item_,
                out_.data() + (to + done * axis.out_stride) * item_,
                axis.out_stride * item_, count);
    done += count;
  }
}

void BoxReader::Read(const ViewBox& box) {
  static constexpr Axis kOneElement{1, 1, 1};
  std::span<const Axis> outer(box.axes);
  const Axis inner = outer.empty() ? kOneElement : outer.back();
  outer = outer.first(outer.empty() ? 0 : outer.size() - 1);
  read_ahead_ = 1;
  box_end_ = box.storage_offset + 1;
  for (const Axis& axis : box.axes) {
    const int64_t span = (axis.size - 1) * axis.storage_stride;
    read_ahead_ += axis.storage_stride * item_ <= kMaxGapBytes ? span : 0;
    box_end_ += span;
  }
  std::vector<int64_t> index(outer.size(), 0);
  int64_t from = box.storage_offset;
  int64_t to = box.out_offset;
  while (true) {
    ReadRun(inner, from, to);
    size_t d = outer.size();
    while (d > 0 && ++index[d - 1] == outer[d - 1].size) {
      --d;
      from -= (outer[d].size - 1) * outer[d].storage_stride;
      to -= (outer[d].size - 1) * outer[d].out_stride;
      index[d] = 0;
    }
    if (d == 0) {
      return;
    }
    from += outer[d - 1].storage_stride;
    to += outer[d - 1].out_stride;
  }
}

}  // namespace

void ReadStrided(RandomAccessFile& file, uint64_t offset_bytes,
                 const TensorInfo& tensor, int64_t first_element,
                 std::span<std::byte> out) {
  const int64_t item = SizeBytes(tensor.dtype);
  const int64_t count = static_cast<int64_t>(out.size()) / item;
  BoxReader reader(file, offset_bytes, item, out);
  for (const ViewBox& box : CutIntoBoxes(tensor, first_element, count)) {
    reader.Read(box);
  }
}

}  // namespace muonstore::torchfile
