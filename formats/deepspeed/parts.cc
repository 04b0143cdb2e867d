#include "formats/deepspeed/parts.h"

#include <algorithm>
#include <utility>

#include "formats/deepspeed/agreement.h"
#include "formats/deepspeed/file_names.h"
#include "formats/deepspeed/model_agreement.h"
#include "formats/deepspeed/rank_sizes.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

// Runs `read`; an error becomes a problem.
template <typename Read>
void Collect(std::vector<Error>& problems, const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    problems.push_back(error);
  }
}

// One model file at a time is in memory, but for those with frozen pieces. The
// others mostly say what rank 0's does: these are compared and not parsed, or a
// thousand ranks would take minutes.
void ReadOtherModel(Parts& parts, const std::string& path) {
  if (parts.model->frozen_fragments.empty() &&
      parts.model->file->HasTwinAt(path)) {
    return;
  }
  ModelStates other = ReadModelStates(parts.fs, path);
  AppendErrors(CompareModels(*parts.model, other), parts.problems);
  if (!parts.model->frozen_fragments.empty()) {
    parts.other_models.push_back(std::move(other));
  }
}

void ReadModels(Parts& parts) {
  const std::vector<std::string>& files = parts.directory.model_files;
  if (files.empty() || files[0].empty()) {
    return;  // Listed as missing by the scan.
  }
  Collect(parts.problems,
          [&] { parts.model = ReadModelStates(parts.fs, files[0]); });
  if (!parts.model || parts.rank_zero_only) {
    return;
  }
  for (size_t rank = 1; rank < files.size(); ++rank) {
    if (!files[rank].empty()) {
      Collect(parts.problems, [&] { ReadOtherModel(parts, files[rank]); });
    }
  }
}

void ReadRanks(Parts& parts) {
  const std::vector<std::string>& files = parts.directory.optim_files;
  const size_t count =
      parts.rank_zero_only ? std::min<size_t>(1, files.size()) : files.size();
  for (size_t rank = 0; rank < count; ++rank) {
    if (!files[rank].empty()) {
      Collect(parts.problems, [&] {
        parts.ranks.push_back(
            ReadRankStates(parts.fs, files[rank], static_cast<int32_t>(rank)));
      });
    }
  }
}

// The highest ranks leave no gap among the names: the model file counts them.
// What follows is judged by that count.
void AddAbsentRanks(Parts& parts) {
  const int64_t world = parts.model->dp_world_size;
  const int32_t present = parts.directory.num_ranks();
  if (world <= present || world > kMaxRanks) {
    return;
  }
  parts.problems.emplace_back(
      ErrorCode::kDataLoss,
      world == present + 1
          ? StrCat("the file of rank ", present, " is missing")
          : StrCat("the files of ranks ", present, "-", world - 1,
                   " are missing, this is the first"),
      ErrorPlace{
          .file = StrCat(parts.directory.path, "/",
                         MakeOptimFileName(present, parts.directory.bf16)),
          .expected = StrCat("dp_world_size ", world),
          .found = StrCat(present, " rank files")});
  parts.directory.optim_files.resize(static_cast<size_t>(world));
}

void BuildTables(Parts& parts) {
  parts.layout =
      BuildLayout(*parts.model, parts.ranks[0], parts.directory.num_ranks());
  std::vector<const RankStates*> ranks;
  for (const RankStates& rank : parts.ranks) {
    ranks.push_back(&rank);
  }
  parts.table = BuildStateTable(*parts.layout, ranks, parts.offloaded());
  parts.problems.insert(parts.problems.end(), parts.table->problems.begin(),
                        parts.table->problems.end());
}

}  // namespace

Parts LoadParts(std::shared_ptr<FileSystem> fs, const std::string& path,
                bool rank_zero_only) {
  Parts parts;
  parts.fs = std::move(fs);
  parts.rank_zero_only = rank_zero_only;
  parts.directory = ScanTagDirectory(*parts.fs, path);
  parts.problems = parts.directory.problems;
  if (parts.directory.num_ranks() == 0) {
    parts.problems.emplace_back(
        ErrorCode::kUnsupported,
        "no *_optim_states.pt file: ZeRO stage 0 and weights alone are not "
        "supported",
        ErrorPlace{.file = path});
    return parts;
  }
  ReadModels(parts);
  ReadRanks(parts);
  if (parts.model) {
    AddAbsentRanks(parts);
    AppendErrors(CheckAgreement(parts), parts.problems);
    const int32_t stage = parts.ranks.empty() ? 0 : parts.ranks[0].stage;
    const bool per_rank = parts.directory.model_file_per_rank;
    AppendErrors(CheckShapes(*parts.model, per_rank ? 3 : stage),
                 parts.problems);
  }
  const size_t expected =
      rank_zero_only ? 1 : static_cast<size_t>(parts.directory.num_ranks());
  if (parts.model && parts.ranks.size() == expected) {
    Collect(parts.problems, [&] { BuildTables(parts); });
  }
  if (parts.layout) {
    AppendErrors(CheckPaddings(parts), parts.problems);
    AppendErrors(CheckSliceClaims(parts), parts.problems);
  }
  if (rank_zero_only) {
    AppendErrors(CheckSizes(parts), parts.problems);
  }
  return parts;
}

}  // namespace muonstore::deepspeed
