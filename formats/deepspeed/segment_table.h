// Every contiguous buffer of a checkpoint, and where its bytes are.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_SEGMENT_TABLE_H_
#define MUONSTORE_FORMATS_DEEPSPEED_SEGMENT_TABLE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/deepspeed/parts.h"
#include "formats/torchfile/torch_file.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

class SegmentTable {
 public:
  // The optimizer state: rank by rank, flat group by flat group, kind by kind.
  // Swap files are checked for presence and size: Error(kDataLoss).
  explicit SegmentTable(const Parts& parts);

  // Adds one tensor of a torch file as a segment of its own.
  int32_t AddTensor(std::shared_ptr<const torchfile::TorchFile> file,
                    uint32_t tensor, int32_t rank, std::string_view kind);

  std::span<const Segment> segments() const { return segments_; }
  int32_t StateSegment(int32_t rank, size_t flat_group, size_t kind) const;
  void Read(int32_t segment, int64_t first_element,
            std::span<std::byte> out) const;

 private:
  // A tensor of a torch file, or a raw swap file when `file` is null.
  struct Source {
    std::shared_ptr<const torchfile::TorchFile> file;
    uint32_t tensor = 0;
  };

  void AddState(const Parts& parts, const RankStates& rank, size_t flat_group,
                const GroupKind& kind);
  void AddSwapFile(const Parts& parts, const RankStates& rank,
                   const FlatBuffer& buffer, Segment segment);

  std::shared_ptr<FileSystem> fs_;
  std::vector<Segment> segments_;
  std::vector<Source> sources_;
  std::vector<size_t> first_of_group_;  // Within a rank's segments.
  size_t segments_per_rank_ = 0;
};

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_SEGMENT_TABLE_H_
