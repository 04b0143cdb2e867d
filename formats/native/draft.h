// A native save in the making: all that is known before anything is written,
// and what the writing adds.
//
// What: plans the manifest from a source and a layout, makes the writers of the
//   ranks' files, and writes everything beside them. Where each rank writes its
//   own file, every rank plans the same draft; what a rank's writing has found
//   out travels as a report to the rank that commits.
// Ownership: refers to nothing of the source or the layout.
// Threads: writers of different ranks on different threads; all else on one.
// Failures: kInvalidArgument for options out of range; kDataLoss for a report
//   of another size; what writing throws.
#ifndef MUONSTORE_FORMATS_NATIVE_DRAFT_H_
#define MUONSTORE_FORMATS_NATIVE_DRAFT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/native/block_table.h"
#include "formats/native/layout.h"
#include "formats/native/plan_manifest.h"
#include "formats/native/rank_writer.h"
#include "formats/native/segment_plan.h"
#include "formats/native/sink.h"
#include "formats/native/tag_writer.h"

namespace muonstore::native {

class Draft {
 public:
  Draft(const Checkpoint& source, const TargetLayout& target,
        const SinkOptions& options, const std::string& save_id);

  const Manifest& manifest() const { return plan_.manifest; }
  // Of everything planned: the same on every rank that planned the same.
  uint64_t plan_digest() const;
  std::span<const std::string> notes() const { return notes_; }

  // The segments of a rank's file, in the order in which they are written.
  std::vector<SinkSegment> SegmentsOf(int32_t rank) const;
  // The same, without the pieces.
  std::span<const Segment> BareSegmentsOf(int32_t rank) const;
  std::unique_ptr<RankWriter> MakeWriter(
      int32_t rank, std::unique_ptr<WritableFile> file,
      const SinkFileResources& resources = {});

  // What the closed writer of a rank found out, of a size that all know.
  size_t ReportBytes(int32_t rank) const;
  std::vector<std::byte> Report(int32_t rank) const;
  // By rank. Error(kUnavailable) where the one who commits does not see a
  // rank's file in the size that the rank reports.
  void TakeReports(const TagWriter& tag,
                   std::span<const std::vector<std::byte>> reports);

  // What the manifest says of the values that WriteRest() will be given, where
  // the source's info does not.
  void NameCarried(std::vector<CarriedValue> values) {
    plan_.manifest.info.carried = std::move(values);
  }

  // Once every rank's file is complete: the checksums, what is carried (null:
  // nothing), the view and the staged manifest, all durable.
  void WriteRest(const TagWriter& tag, const torchfile::CarriedState* carried);

 private:
  void TakeReport(int32_t rank, std::span<const std::byte> report);
  std::string SegmentName(size_t segment) const;
  FileDigest WriteView(const TagWriter& tag) const;

  PlannedManifest plan_;
  Layout layout_;
  SegmentPlan pieces_;
  BlockTable blocks_;
  int zstd_level_;
  std::vector<std::string> slot_names_;
  std::vector<std::string> notes_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_DRAFT_H_
