// Writes safetensors files as Hugging Face expects them.
//
// What: `model.safetensors`, or shards and `model.safetensors.index.json`, in a
//   tag directory that appears whole or not at all.
// Ownership: keeps references to the source and the root; both must outlive it.
// Threads, failures: as CheckpointSink.

#ifndef MUONSTORE_FORMATS_SAFETENSORS_SINK_H_
#define MUONSTORE_FORMATS_SAFETENSORS_SINK_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors/export_plan.h"
#include "muonstore/checkpoint_sink.h"
#include "src/os/output_root.h"

namespace muonstore::safetensors {

class SafetensorsSink final : public CheckpointSink {
 public:
  SafetensorsSink(const Checkpoint& source, os::OutputRoot& root,
                  const std::string& tag, bool overwrite,
                  const ExportOptions& options);

  const ExportPlan& plan() const { return plan_; }

  std::string path() const override { return staged_.final_path(); }
  size_t num_files() const override { return plan_.shards.size(); }
  std::vector<SinkSegment> PlanFile(size_t file) const override;
  std::span<const SinkLoss> losses() const override { return plan_.losses; }
  std::span<const std::string> notes() const override { return plan_.notes; }
  std::unique_ptr<SinkFile> CreateFile(size_t file) override;
  void Finish() override;
  std::shared_ptr<FileSystem> Preview() const override {
    return staged_.Preview();
  }
  void Commit() override;

 private:
  bool finished_ = false;
  ExportPlan plan_;
  os::OutputRoot& root_;
  os::StagedDirectory staged_;
};

}  // namespace muonstore::safetensors

#endif  // MUONSTORE_FORMATS_SAFETENSORS_SINK_H_
