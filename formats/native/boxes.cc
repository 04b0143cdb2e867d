#include "formats/native/boxes.h"

#include <utility>

namespace muonstore::native {
namespace {

class Splitter {
 public:
  explicit Splitter(const Shape& shape)
      : dims_(shape.dims()), inner_(shape.dims().size(), 1) {
    for (size_t axis = dims_.size(); axis-- > 1;) {
      inner_[axis - 1] = inner_[axis] * dims_[axis];
    }
  }

  std::vector<Box> Run(ElementRange run) {
    if (dims_.empty()) {
      boxes_.emplace_back();
    } else {
      Split(0, run);
    }
    return std::move(boxes_);
  }

 private:
  // `run` counts elements within the row that `row_` names so far.
  void Split(size_t axis, ElementRange run) {
    const int64_t size = inner_[axis];
    int64_t first = run.begin / size;
    const int64_t last = run.end / size;
    const ElementRange head{run.begin % size, size};
    const ElementRange tail{0, run.end % size};
    if (first == last) {
      Descend(axis, first, {head.begin, tail.end});
      return;
    }
    if (head.begin > 0) {
      Descend(axis, first++, head);
    }
    if (first < last) {
      AddBox(first, last - first);
    }
    if (tail.end > 0) {
      Descend(axis, last, tail);
    }
  }

  void Descend(size_t axis, int64_t index, ElementRange run) {
    row_.push_back(index);
    Split(axis + 1, run);
    row_.pop_back();
  }

  // Whole rows of the axis behind `row_`.
  void AddBox(int64_t first, int64_t count) {
    Box box{row_, std::vector<int64_t>(row_.size(), 1)};
    box.start.push_back(first);
    box.count.push_back(count);
    for (size_t axis = box.start.size(); axis < dims_.size(); ++axis) {
      box.start.push_back(0);
      box.count.push_back(dims_[axis]);
    }
    boxes_.push_back(std::move(box));
  }

  const std::vector<int64_t>& dims_;
  std::vector<int64_t> inner_;  // Elements of one step along each axis.
  std::vector<int64_t> row_;
  std::vector<Box> boxes_;
};

}  // namespace

std::vector<Box> BoxesOf(const Shape& shape, ElementRange run) {
  return run.size() == 0 ? std::vector<Box>() : Splitter(shape).Run(run);
}

}  // namespace muonstore::native
