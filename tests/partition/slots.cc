#include "tests/partition/slots.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace muonstore {
namespace {

void Write(Buffers& buffers, int32_t segment, int64_t position, int64_t value) {
  const bool is_new = buffers[segment].emplace(position, value).second;
  EXPECT_TRUE(is_new) << "segment " << segment << " position " << position
                      << " is written twice";
}

}  // namespace

std::vector<Slot> Expand(std::span<const Fragment> fragments) {
  std::vector<Slot> slots;
  for (const Fragment& fragment : fragments) {
    for (int64_t i = 0; i < fragment.count; ++i) {
      for (int64_t j = 0; j < fragment.length; ++j) {
        slots.push_back({fragment.tensor_offset + i * fragment.stride + j,
                         fragment.segment,
                         fragment.segment_offset + i * fragment.length + j});
      }
    }
  }
  std::sort(slots.begin(), slots.end());
  return slots;
}

void Fill(std::span<const Fragment> fragments, int64_t first_label,
          Buffers& buffers) {
  for (const Slot& slot : Expand(fragments)) {
    Write(buffers, slot.segment, slot.position, first_label + slot.element);
  }
}

void Execute(std::span<const CopyOp> plan, const Buffers& source,
             Buffers& dest) {
  for (const CopyOp& op : plan) {
    const auto segment = source.find(op.source_segment);
    ASSERT_NE(segment, source.end());
    for (int64_t i = 0; i < op.count; ++i) {
      for (int64_t j = 0; j < op.length; ++j) {
        const auto value =
            segment->second.find(op.source_offset + i * op.source_stride + j);
        ASSERT_NE(value, segment->second.end());
        Write(dest, op.dest_segment, op.dest_offset + i * op.dest_stride + j,
              value->second);
      }
    }
  }
}

}  // namespace muonstore
