// A sink whose target gets a fingerprint beside it.
//
// What: passes everything on to another sink, looks at the bytes on their way
//   and puts `<root>/<tag>.fingerprint.json` in place once the target exists. A
//   fingerprint of a tag that is being replaced goes before the new tag comes,
//   so that none ever belongs to another tag's state.
// Ownership: owns the other sink; source and root must outlive it.
// Threads, failures: as CheckpointSink; Error(kInvalidArgument) where the
//   fingerprint's name is taken and not to be overwritten.

#ifndef MUONSTORE_CONVERTERS_FINGERPRINTED_SINK_H_
#define MUONSTORE_CONVERTERS_FINGERPRINTED_SINK_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "converters/fingerprint.h"
#include "muonstore/checkpoint_sink.h"
#include "src/os/output_root.h"

namespace muonstore {

// "step5.fingerprint.json".
std::string FingerprintName(const std::string& tag);
bool IsFingerprintName(const std::string& file_name);

// Before a tag is replaced: its fingerprint goes, where it has one.
class FingerprintedSink final : public CheckpointSink {
 public:
  FingerprintedSink(std::unique_ptr<CheckpointSink> sink,
                    const Checkpoint& source, os::OutputRoot& root,
                    const std::string& tag, bool overwrite);

  std::string path() const override { return sink_->path(); }
  size_t num_files() const override { return sink_->num_files(); }
  std::vector<SinkSegment> PlanFile(size_t file) const override {
    return sink_->PlanFile(file);
  }
  std::span<const SinkLoss> losses() const override { return sink_->losses(); }
  std::span<const std::string> notes() const override { return sink_->notes(); }
  void SetFileResources(const SinkFileResources& resources) override {
    sink_->SetFileResources(resources);
  }
  std::unique_ptr<SinkFile> CreateFile(size_t file) override;
  void Finish() override;
  std::shared_ptr<FileSystem> Preview() const override {
    return sink_->Preview();
  }
  void Commit() override;

 private:
  std::unique_ptr<CheckpointSink> sink_;
  os::OutputRoot& root_;
  std::string tag_;
  Fingerprint fingerprint_;
  std::unique_ptr<os::StagedFile> file_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_FINGERPRINTED_SINK_H_
