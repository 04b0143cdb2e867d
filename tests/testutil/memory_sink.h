// A CheckpointSink that keeps what it is given, for tests of the converter.
//
// What: files and segments are added by the test; bytes that arrive out of
//   order, too many or too few are failures of the running test.
// Ownership: owns its plan and contents.
// Threads: as CheckpointSink; read contents when the conversion is over.
// Failures: what `on_append` throws.
#ifndef MUONSTORE_TESTS_TESTUTIL_MEMORY_SINK_H_
#define MUONSTORE_TESTS_TESTUTIL_MEMORY_SINK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "muonstore/checkpoint_sink.h"

namespace muonstore::testutil {

class MemorySink final : public CheckpointSink {
 public:
  using FilePlan = std::vector<SinkSegment>;

  explicit MemorySink(std::vector<FilePlan> files);

  std::vector<SinkLoss>& mutable_losses() { return losses_; }
  // Called before each Append with the file's index; may throw.
  std::function<void(size_t file)> on_append;

  bool finished() const { return finished_; }
  bool committed() const { return committed_; }
  size_t num_closed() const { return num_closed_.load(); }
  size_t largest_append() const { return largest_append_; }
  const std::vector<std::byte>& contents(size_t file, size_t segment) const {
    return contents_[file][segment];
  }
  // The elements of a segment as floats.
  std::vector<float> Floats(size_t file, size_t segment) const;

  std::string path() const override { return "memory/tag"; }
  size_t num_files() const override { return files_.size(); }
  std::vector<SinkSegment> PlanFile(size_t file) const override {
    return files_[file];
  }
  std::span<const SinkLoss> losses() const override { return losses_; }
  std::span<const std::string> notes() const override { return notes_; }
  std::unique_ptr<SinkFile> CreateFile(size_t file) override;
  void Finish() override { finished_ = true; }
  std::shared_ptr<FileSystem> Preview() const override { return nullptr; }
  void Commit() override;

 private:
  class File;

  std::vector<FilePlan> files_;
  std::vector<SinkLoss> losses_;
  std::vector<std::string> notes_;
  std::vector<std::vector<std::vector<std::byte>>> contents_;
  std::mutex mutex_;
  size_t largest_append_ = 0;
  std::atomic<size_t> num_closed_{0};
  bool finished_ = false;
  bool committed_ = false;
};

}  // namespace muonstore::testutil

#endif  // MUONSTORE_TESTS_TESTUTIL_MEMORY_SINK_H_
