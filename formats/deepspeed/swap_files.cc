#include "formats/deepspeed/swap_files.h"

#include <map>
#include <set>
#include <utility>

#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

std::string RankFolder(const Parts& parts, int32_t rank) {
  return StrCat(parts.directory.path, "/offloaded_tensors/rank",
                rank < 10 ? "0" : "", rank);
}

class Check {
 public:
  explicit Check(const Parts& parts) : parts_(parts) {}

  std::vector<Finding> Run() {
    for (const RankStates& rank : parts_.ranks) {
      AddExpected(rank);
    }
    const std::string& folder = parts_.directory.swap_directory;
    for (const std::string& name : parts_.fs->List(folder)) {
      CheckRankFolder(StrCat(folder, "/", name));
    }
    return std::move(findings_);
  }

 private:
  void AddExpected(const RankStates& rank) {
    const auto groups = parts_.layout->partitioning.groups();
    folders_.insert(RankFolder(parts_, rank.rank));
    for (size_t g = 0; g < rank.flat.size() && g < groups.size(); ++g) {
      const int64_t elements = groups[g].partition_elements;
      Expect(rank, *rank.flat[g].master, elements);
      for (const auto& [kind, buffer] : rank.flat[g].buffers) {
        Expect(rank, buffer, elements);
      }
    }
  }

  void Expect(const RankStates& rank, const FlatBuffer& buffer,
              int64_t num_elements) {
    if (!buffer.swap_name.empty()) {
      expected_bytes_[SwapPath(parts_, rank.rank, buffer.swap_name)] =
          static_cast<uint64_t>(CheckedMultiply(
              num_elements, SizeBytes(DType::kF32), "bytes of a swap file"));
    }
  }

  void CheckRankFolder(const std::string& path) {
    const auto status = parts_.fs->Stat(path);
    const bool is_folder = status && status->type == FileType::kDirectory;
    if (!is_folder || !folders_.contains(path)) {
      Extra(path, is_folder ? "a folder of swap files that belongs to no rank"
                            : "a file that belongs to no rank");
      return;
    }
    for (const std::string& name : parts_.fs->List(path)) {
      CheckFile(StrCat(path, "/", name));
    }
  }

  void CheckFile(const std::string& path) {
    const auto expected = expected_bytes_.find(path);
    if (expected == expected_bytes_.end()) {
      Extra(path, "a swap file that the rank's state does not name");
      return;
    }
    const auto status = parts_.fs->Stat(path);
    const uint64_t most = RoundedUp(expected->second);
    if (status && status->size_bytes > most) {
      const Error error(ErrorCode::kDataLoss,
                        "the swap file is longer than the rank's partition: of "
                        "another run, or appended to",
                        {.file = path,
                         .expected = StrCat("at most ", most, " bytes"),
                         .found = StrCat(status->size_bytes)});
      findings_.push_back(Finding::FromError(error, "swap_file_size"));
      findings_.back().severity = Finding::Severity::kWarning;
    }
  }

  // DeepSpeed writes whole blocks, of 1 KiB for each of its I/O threads.
  uint64_t RoundedUp(uint64_t bytes) const {
    constexpr uint64_t kBlockBytes = 1024;
    const uint64_t block =
        kBlockBytes * static_cast<uint64_t>(parts_.model->config.io_threads);
    return bytes + (block - bytes % block) % block;
  }

  void Extra(const std::string& path, std::string message) {
    findings_.push_back({.severity = Finding::Severity::kNote,
                         .code = "extra_files",
                         .message = std::move(message),
                         .place = {.file = path}});
  }

  const Parts& parts_;
  std::set<std::string> folders_;
  std::map<std::string, uint64_t> expected_bytes_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string SwapPath(const Parts& parts, int32_t rank,
                     const std::string& swap_name) {
  return StrCat(RankFolder(parts, rank), "/", swap_name, ".tensor.swp");
}

std::vector<Finding> CheckSwapFiles(const Parts& parts) {
  return parts.directory.swap_directory.empty() ? std::vector<Finding>()
                                                : Check(parts).Run();
}

}  // namespace muonstore::deepspeed
