#include "formats/deepspeed/rank_sizes.h"

#include <string>

#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

// An empty dict by torch.save has several times as much.
constexpr uint64_t kSmallestTorchFile = 64;

uint64_t BytesOfElements(const FlatState& like, int64_t num_elements) {
  const auto elements = static_cast<uint64_t>(num_elements);
  uint64_t bytes = 0;
  // Swapped state lies in other files.
  if (like.master && like.master->swap_name.empty()) {
    bytes += elements * static_cast<uint64_t>(SizeBytes(like.master->dtype));
  }
  for (const std::string_view kind : {kExpAvg, kExpAvgSq}) {
    const FlatBuffer* buffer = like.Find(kind);
    if (buffer != nullptr && buffer->swap_name.empty()) {
      bytes += elements * static_cast<uint64_t>(SizeBytes(buffer->dtype));
    }
  }
  return bytes;
}

// Of state that every rank has for each of its elements.
uint64_t SmallestOptimFile(const Parts& parts, int32_t rank) {
  uint64_t bytes = kSmallestTorchFile;
  if (!parts.layout) {
    return bytes;
  }
  const Partitioning& partitioning = parts.layout->partitioning;
  for (size_t g = 0; g < partitioning.groups().size(); ++g) {
    const int64_t elements =
        partitioning.groups()[g].partition_elements -
        partitioning.tail_padding(rank, static_cast<int32_t>(g));
    bytes += BytesOfElements(parts.ranks[0].flat[g], elements);
  }
  return bytes;
}

class SizeCheck {
 public:
  explicit SizeCheck(const Parts& parts) : parts_(parts) {}

  std::vector<Error> Run() {
    const auto& optim_files = parts_.directory.optim_files;
    for (size_t rank = 1; rank < optim_files.size(); ++rank) {
      Check(optim_files[rank],
            SmallestOptimFile(parts_, static_cast<int32_t>(rank)));
    }
    const auto& model_files = parts_.directory.model_files;
    for (size_t rank = 1; rank < model_files.size(); ++rank) {
      Check(model_files[rank], kSmallestTorchFile);
    }
    return std::move(errors_);
  }

 private:
  void Check(const std::string& path, uint64_t least_bytes) {
    if (path.empty()) {
      return;  // Listed as missing by the scan.
    }
    const auto status = parts_.fs->Stat(path);
    if (status && status->size_bytes < least_bytes) {
      errors_.emplace_back(
          ErrorCode::kDataLoss,
          "the file is shorter than its rank's state: it was cut or not "
          "written to its end",
          ErrorPlace{.file = path,
                     .expected = StrCat(least_bytes, " bytes or more"),
                     .found = StrCat(status->size_bytes)});
    }
  }

  const Parts& parts_;
  std::vector<Error> errors_;
};

}  // namespace

std::vector<Error> CheckSizes(const Parts& parts) {
  return SizeCheck(parts).Run();
}

}  // namespace muonstore::deepspeed
