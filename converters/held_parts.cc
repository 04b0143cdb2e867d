#include "converters/held_parts.h"

namespace muonstore {

std::vector<ElementRange> HeldParts(ElementRange range,
                                    std::span<const ElementRange> missing) {
  std::vector<ElementRange> held;
  for (const ElementRange& hole : missing) {
    if (hole.end <= range.begin || hole.begin >= range.end) continue;
    if (hole.begin > range.begin) held.push_back({range.begin, hole.begin});
    range.begin = hole.end;
  }
  if (range.begin < range.end) held.push_back(range);
  return held;
}

}  // namespace muonstore
