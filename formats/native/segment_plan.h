// Which elements of which tensors lie in the segments of a rank.
//
// What: indexes a manifest's tensors by slot once, so that planning all files
//   costs what they hold.
// Ownership: keeps references to manifest and layout.
// Threads: immutable after construction. Failures: none.
#ifndef MUONSTORE_FORMATS_NATIVE_SEGMENT_PLAN_H_
#define MUONSTORE_FORMATS_NATIVE_SEGMENT_PLAN_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "formats/native/layout.h"
#include "formats/native/manifest.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore::native {

class SegmentPlan {
 public:
  SegmentPlan(const Manifest& manifest, const Layout& layout);

  // Of a segment of the layout; `tensor` is an index into the manifest's, and
  // missing elements are left out. Ascending.
  std::vector<SinkPiece> Pieces(size_t segment) const;

 private:
  void AddPresent(size_t tensor, const SinkPiece& piece,
                  std::vector<SinkPiece>& pieces) const;

  const Manifest& manifest_;
  const Layout& layout_;
  // By slot: the tensor of each parameter; of a single tensor under -1.
  std::vector<std::unordered_map<int32_t, size_t>> tensors_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_SEGMENT_PLAN_H_
