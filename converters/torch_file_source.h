// A single torch.save file as a Checkpoint.
#ifndef MUONSTORE_CONVERTERS_TORCH_FILE_SOURCE_H_
#define MUONSTORE_CONVERTERS_TORCH_FILE_SOURCE_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "formats/torchfile/torch_file.h"
#include "muonstore/checkpoint.h"
#include "muonstore/file_system.h"

namespace muonstore {

// Every tensor that the file's dicts and lists hold, by the path of its keys
// ("optimizer.state.0"). The last key names the kind where it is an
// optimizer's (exp_avg, momentum_buffer, ...); all others are weights. A file
// whose root is an object of a class is kUnsupported.
class TorchFileSource final : public Checkpoint {
 public:
  static std::unique_ptr<TorchFileSource> Open(std::shared_ptr<FileSystem> fs,
                                               const std::string& path);

  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return tensors_;
  }
  std::vector<Fragment> fragments(size_t tensor) const override;
  std::span<const Segment> segments() const override { return segments_; }
  void ReadSegment(int32_t segment, int64_t first_element,
                   std::span<std::byte> out) const override;

 private:
  explicit TorchFileSource(std::shared_ptr<const torchfile::TorchFile> file);
  void AddTensor(const std::string& path, const torchfile::TensorInfo& info);

  std::shared_ptr<const torchfile::TorchFile> file_;
  CheckpointInfo info_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<Segment> segments_;                    // One a tensor.
  std::vector<const torchfile::TensorInfo*> views_;  // Of the value tree.
  std::set<TensorKey> keys_;
};

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_TORCH_FILE_SOURCE_H_
