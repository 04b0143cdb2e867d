#include "formats/deepspeed/swap_files.h"

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
    const size_t num_groups = parts_.layout->partitioning.groups().size();
    folders_.insert(RankFolder(parts_, rank.rank));
    for (size_t g = 0; g < rank.flat.size() && g < num_groups; ++g) {
      Expect(rank, *rank.flat[g].master);
      for (const auto& [kind, buffer] : rank.flat[g].buffers) {
        Expect(rank, buffer);
      }
    }
  }

  void Expect(const RankStates& rank, const FlatBuffer& buffer) {
    if (!buffer.swap_name.empty()) {
      expected_.insert(SwapPath(parts_, rank.rank, buffer.swap_name));
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
    if (!expected_.contains(path)) {
      Extra(path, "a swap file that the rank's state does not name");
    }
  }

  void Extra(const std::string& path, std::string message) {
    findings_.push_back({.severity = Finding::Severity::kNote,
                         .code = "extra_files",
                         .message = std::move(message),
                         .place = {.file = path}});
  }

  const Parts& parts_;
  std::set<std::string> folders_;
  std::set<std::string> expected_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string SwapPath(const Parts& parts, int32_t rank,
                     const std::string& swap_name) {
  return StrCat(RankFolder(parts, rank), "/", swap_name, ".tensor.swp");
}

void RequireSwapSize(const Parts& parts, const std::string& path,
                     uint64_t size_bytes, uint64_t partition_bytes) {
  // DeepSpeed writes whole blocks, of 1 KiB for each of its I/O threads.
  constexpr uint64_t kBlockBytes = 1024;
  const uint64_t block =
      kBlockBytes * static_cast<uint64_t>(parts.model->config.io_threads);
  const uint64_t most =
      partition_bytes + (block - partition_bytes % block) % block;
  if (size_bytes >= partition_bytes && size_bytes <= most) return;
  const bool is_short = size_bytes < partition_bytes;
  throw Error(
      ErrorCode::kDataLoss,
      is_short ? "the swap file is cut short"
               : "the swap file is longer than the rank's partition: "
                 "of another run, or appended to",
      {.file = path,
       .expected = is_short ? StrCat("at least ", partition_bytes, " bytes")
                            : StrCat("at most ", most, " bytes"),
       .found = StrCat(size_bytes)});
}

std::vector<Finding> CheckSwapFiles(const Parts& parts) {
  return parts.directory.swap_directory.empty() ? std::vector<Finding>()
                                                : Check(parts).Run();
}

}  // namespace muonstore::deepspeed
