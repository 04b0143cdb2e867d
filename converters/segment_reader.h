// Reads blocks of a target's segment from the fragments of a source.
//
// What: gives the bytes of any run of a SinkSegment: what its pieces say, from
//   wherever the source keeps it, in the segment's dtype; zeros elsewhere.
//   Ranges that neighbour one another in source and target become one read.
// Ownership: keeps a reference to the source. Its scratch space grows to
//   kScratchPerByte times the largest block that was asked for.
// Threads: one reader belongs to one thread; many may share a source.
// Failures: what reading the source throws, with the tensor's name.

#ifndef MUONSTORE_CONVERTERS_SEGMENT_READER_H_
#define MUONSTORE_CONVERTERS_SEGMENT_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "converters/element_converter.h"
#include "muonstore/checkpoint.h"
#include "muonstore/checkpoint_sink.h"

namespace muonstore {

class SegmentReader {
 public:
  // From f64 to bf16: four bytes of scratch for one of the block.
  static constexpr uint64_t kScratchPerByte = 4;

  explicit SegmentReader(const Checkpoint& source) : source_(source) {}
  ~SegmentReader() = default;
  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;

  // A tensor and how many of its values a Read made infinite.
  struct Overflow {
    size_t tensor = 0;
    int64_t num_elements = 0;
  };

  // Elements from `first_element` on, as many as fit into `out`.
  void Read(const SinkSegment& segment, int64_t first_element,
            std::span<std::byte> out);
  // Of the last Read; a tensor may be there more than once.
  std::span<const Overflow> overflows() const { return overflows_; }

 private:
  // A run of elements in one source segment, and its place in the block.
  struct Run {
    int32_t source_segment;
    int64_t source_element;
    int64_t block_element;
    int64_t length;
    size_t tensor;  // For messages.
  };
  // How stored elements become those of the block.
  struct Form {
    DType stored;
    DType logical;  // Other than stored for round(master).

    friend bool operator==(const Form&, const Form&) = default;
  };

  void AddPiece(const SinkPiece& piece, int64_t block_begin, int64_t block_end);
  void AddRange(size_t tensor, ElementRange range, int64_t block_element);
  Form FormOf(size_t tensor) const;
  // Reads the runs collected so far; they are of one form.
  void Flush(const SinkSegment& segment, std::span<std::byte> out);
  void ReadRuns(size_t item, std::span<std::byte> to, int64_t first) const;

  const Checkpoint& source_;
  ElementConverter converter_;
  // Of the tensor that was read last: a large one is met block after block.
  std::optional<size_t> fragments_of_;
  std::vector<Fragment> fragments_;
  std::vector<Run> runs_;
  std::vector<Overflow> overflows_;
  Form form_{};
  std::vector<std::byte> stored_;
  std::vector<std::byte> rounded_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_SEGMENT_READER_H_
