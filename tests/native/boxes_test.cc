// Boxes against a walk over every element.
#include "formats/native/boxes.h"

#include <random>

#include <gtest/gtest.h>

namespace muonstore::native {
namespace {

// Elements of a box in row-major order of the whole shape.
std::vector<int64_t> ElementsOf(const Box& box, const Shape& shape) {
  std::vector<int64_t> elements;
  std::vector<int64_t> index = box.start;
  for (;;) {
    int64_t element = 0;
    for (size_t axis = 0; axis < index.size(); ++axis) {
      element = element * shape.dims()[axis] + index[axis];
    }
    elements.push_back(element);
    size_t axis = index.size();
    while (axis > 0 &&
           ++index[axis - 1] == box.start[axis - 1] + box.count[axis - 1]) {
      index[axis - 1] = box.start[axis - 1];
      --axis;
    }
    if (axis == 0) {
      return elements;
    }
  }
}

void CheckRun(const Shape& shape, ElementRange run) {
  std::vector<int64_t> elements;
  const std::vector<Box> boxes = BoxesOf(shape, run);
  for (const Box& box : boxes) {
    const std::vector<int64_t> part = ElementsOf(box, shape);
    elements.insert(elements.end(), part.begin(), part.end());
  }
  ASSERT_EQ(static_cast<int64_t>(elements.size()), run.size());
  for (size_t i = 0; i < elements.size(); ++i) {
    ASSERT_EQ(elements[i], run.begin + static_cast<int64_t>(i))
        << shape.ToString() << " " << run.begin << ".." << run.end;
  }
  EXPECT_LE(static_cast<int64_t>(boxes.size()),
            std::max<int64_t>(1, 2 * shape.rank() - 1));
}

TEST(NativeBoxes, EveryRunOfSmallShapes) {
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{
           {}, {1}, {7}, {3, 4}, {1, 5}, {5, 1}, {2, 3, 4}, {2, 1, 3, 2}}) {
    const Shape shape(dims);
    for (int64_t begin = 0; begin < shape.num_elements(); ++begin) {
      for (int64_t end = begin + 1; end <= shape.num_elements(); ++end) {
        CheckRun(shape, {begin, end});
      }
    }
  }
}

TEST(NativeBoxes, NothingOfNothing) {
  EXPECT_TRUE(BoxesOf(Shape({0, 4}), {0, 0}).empty());
}

TEST(NativeBoxes, ARunThatStartsInMidRowHasThreePieces) {
  const std::vector<Box> boxes = BoxesOf(Shape({10, 10}), {5, 45});
  ASSERT_EQ(boxes.size(), 3U);
  EXPECT_EQ(boxes[1].start, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(boxes[1].count, (std::vector<int64_t>{3, 10}));
}

}  // namespace
}  // namespace muonstore::native
