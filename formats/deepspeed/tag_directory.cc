#include "formats/deepspeed/tag_directory.h"

#include <algorithm>
#include <optional>

#include "formats/deepspeed/file_names.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

class Scan {
 public:
  Scan(FileSystem& fs, const std::string& path) : fs_(fs) {
    directory_.path = path;
  }

  TagDirectory Run() {
    for (const std::string& name : fs_.List(directory_.path)) {
      Add(name);
    }
    directory_.model_file_per_rank = !rank_models_.empty();
    directory_.model_files =
        directory_.model_file_per_rank ? rank_models_ : plain_models_;
    if (!rank_models_.empty() && !plain_models_.empty()) {
      Problem(ErrorCode::kDataLoss, plain_models_[0],
              "files of ZeRO-3 and of another stage lie in one directory");
    }
    FindGaps();
    return std::move(directory_);
  }

 private:
  void Problem(ErrorCode code, const std::string& file, std::string message) {
    directory_.problems.emplace_back(code, std::move(message),
                                     ErrorPlace{.file = file});
  }

  std::string PathOf(const std::string& name) const {
    return directory_.path + "/" + name;
  }

  void Add(const std::string& name) {
    const auto status = fs_.Stat(PathOf(name));
    if (status && status->type == FileType::kDirectory) {
      AddDirectory(name);
      return;
    }
    directory_.num_files += 1;
    if (status) {
      directory_.size_bytes += status->size_bytes;
      directory_.modified_ns =
          std::max(directory_.modified_ns, status->modified_ns);
    }
    AddFile(name);
  }

  void AddFile(const std::string& name) {
    if (const auto feature = UnsupportedFeatureOf(name)) {
      Problem(ErrorCode::kUnsupported, PathOf(name),
              StrCat("files of ", *feature, " are not supported"));
    } else if (const auto optim = ParseOptimFileName(name)) {
      directory_.bf16 = directory_.bf16 || optim->bf16;
      Place(directory_.optim_files, optim->rank, name);
    } else if (const auto model = ParseModelFileName(name)) {
      Place(model->rank ? rank_models_ : plain_models_, model->rank.value_or(0),
            name);
    } else {
      directory_.extra_files.push_back(name);
    }
  }

  void AddDirectory(const std::string& name) {
    if (name != "offloaded_tensors") {
      directory_.extra_files.push_back(name + "/");
      return;
    }
    directory_.swap_directory = PathOf(name);
    for (const std::string& rank : fs_.List(directory_.swap_directory)) {
      AddSwapFiles(directory_.swap_directory + "/" + rank);
    }
  }

  void AddSwapFiles(const std::string& folder) {
    const auto status = fs_.Stat(folder);
    if (!status || status->type != FileType::kDirectory) {
      return;
    }
    for (const std::string& name : fs_.List(folder)) {
      if (const auto file = fs_.Stat(folder + "/" + name)) {
        directory_.num_files += 1;
        directory_.size_bytes += file->size_bytes;
      }
    }
  }

  void Place(std::vector<std::string>& files, int32_t rank,
             const std::string& name) {
    if (rank >= kMaxRanks) {
      Problem(ErrorCode::kDataLoss, PathOf(name), "the rank is out of range");
      return;
    }
    const auto index = static_cast<size_t>(rank);
    if (files.size() <= index) {
      files.resize(index + 1);
    }
    if (!files[index].empty()) {
      Problem(
          ErrorCode::kDataLoss, PathOf(name),
          StrCat("rank ", rank, " has two files; the other is ", files[index]));
      return;
    }
    files[index] = PathOf(name);
  }

  void FindGaps() {
    const auto num_ranks = static_cast<size_t>(directory_.num_ranks());
    if (directory_.model_file_per_rank) {
      // The longer list says how many ranks there were.
      const size_t ranks = std::max(num_ranks, directory_.model_files.size());
      directory_.model_files.resize(ranks);
      directory_.optim_files.resize(ranks);
    } else {
      directory_.model_files.resize(1);
    }
    ReportEmpty(directory_.optim_files, [this](int32_t rank) {
      return MakeOptimFileName(rank, directory_.bf16);
    });
    ReportEmpty(directory_.model_files, [this](int32_t rank) {
      return MakeModelFileName(
          directory_.model_file_per_rank ? std::optional(rank) : std::nullopt);
    });
  }

  template <typename MakeName>
  void ReportEmpty(const std::vector<std::string>& files,
                   const MakeName& make_name) {
    for (size_t i = 0; i < files.size(); ++i) {
      if (files[i].empty()) {
        const auto rank = static_cast<int32_t>(i);
        Problem(ErrorCode::kDataLoss, PathOf(make_name(rank)),
                StrCat("the file of rank ", rank, " is missing"));
      }
    }
  }

  FileSystem& fs_;
  TagDirectory directory_;
  std::vector<std::string> plain_models_;
  std::vector<std::string> rank_models_;
};

}  // namespace

bool IsTagDirectory(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return ParseOptimFileName(name) || ParseModelFileName(name) ||
           UnsupportedFeatureOf(name);
  });
}

TagDirectory ScanTagDirectory(FileSystem& fs, const std::string& path) {
  return Scan(fs, path).Run();
}

}  // namespace muonstore::deepspeed
