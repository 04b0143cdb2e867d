// The values beside the tensors: one torch file a rank of the source.
//
// What: carried-<rank>.<save id>.pt holds {"model_states": ..., "optim_states":
//   ...}, trees of the source's files in which None stands for every logical
//   tensor; one that the source lacks is None. Opaque values keep their bytes.
// Ownership: NativeCarriedState keeps no file open.
// Threads: as CarriedState.
// Failures: Error of the file.
#ifndef MUONSTORE_FORMATS_NATIVE_CARRIED_H_
#define MUONSTORE_FORMATS_NATIVE_CARRIED_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/torchfile/carried_state.h"
#include "muonstore/file_system.h"

namespace muonstore::native {

class NativeCarriedState final : public torchfile::CarriedState {
 public:
  // One path a rank.
  NativeCarriedState(std::shared_ptr<FileSystem> fs,
                     std::vector<std::string> paths)
      : fs_(std::move(fs)), paths_(std::move(paths)) {}

  int32_t num_ranks() const override {
    return static_cast<int32_t>(paths_.size());
  }
  torchfile::CarriedRank rank(int32_t rank) const override;

 private:
  std::shared_ptr<FileSystem> fs_;
  std::vector<std::string> paths_;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_CARRIED_H_
