// A native checkpoint as a logical Checkpoint.
//
// What: goes by the manifest and reads segments at their offsets; libhdf5 is
//   not involved. Open checks the manifest, the names and sizes of all files
//   and the table of checksums; see segment_reader.h for what a read checks and
//   verify.h for the rest.
// Ownership: owns its tables; opens rank files for each read.
// Threads: immutable after Open.
// Failures: Open throws the first thing that is wrong.
#ifndef MUONSTORE_FORMATS_NATIVE_CHECKPOINT_H_
#define MUONSTORE_FORMATS_NATIVE_CHECKPOINT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "formats/native/carried.h"
#include "formats/native/segment_reader.h"
#include "formats/native/tag_files.h"
#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"

namespace muonstore::native {

struct ReadOptions {
  // Elements that the source had lost are listed instead of refused.
  bool allow_loss = false;
};

class NativeCheckpoint final : public Checkpoint {
 public:
  static std::unique_ptr<NativeCheckpoint> Open(std::shared_ptr<FileSystem> fs,
                                                const std::string& directory,
                                                const ReadOptions& options);

  // From files without problems.
  explicit NativeCheckpoint(TagFiles tag);

  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return tensors_;
  }
  std::vector<Fragment> fragments(size_t tensor) const override;
  std::span<const Segment> segments() const override { return segments_; }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override;
  const torchfile::CarriedState* carried_state() const override {
    return carried_ ? &*carried_ : nullptr;
  }

  // How the state is cut.
  const ZeroRule& rule() const { return tag_.manifest.rule; }
  const Partitioning& partitioning() const {
    return tag_.layout->partitioning();
  }

 private:
  TagFiles tag_;
  SegmentReader reader_;
  CheckpointInfo info_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<Segment> segments_;
  std::optional<NativeCarriedState> carried_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_CHECKPOINT_H_
