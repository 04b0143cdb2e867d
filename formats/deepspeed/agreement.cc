#include "formats/deepspeed/agreement.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "formats/deepspeed/file_names.h"
#include "formats/deepspeed/parts.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

constexpr std::string_view kMixed = ": files of different saves are mixed";

std::string Render(const ScalarMap& map) {
  std::string out;
  for (const auto& [name, value] : map) {
    out += (out.empty() ? "" : ", ") + name + "=" + ScalarToString(value);
  }
  return out.empty() ? "nothing" : out;
}

std::string RenderGroup(const ParamGroupState& group) {
  const std::string muon =
      group.use_muon ? StrCat("use_muon=", *group.use_muon, ", ") : "";
  return StrCat(group.name, ": ", muon, Render(group.hyper_parameters));
}

// Compares rank files with that of the lowest rank.
class Comparison {
 public:
  Comparison(const RankStates& first, const RankStates& rank,
             std::vector<Error>& errors)
      : first_(first), rank_(rank), errors_(errors) {}

  void Run() {
    Equal("the ZeRO stage", StrCat(first_.stage), StrCat(rank_.stage));
    Equal("the optimizer class", std::string(WriterName(first_.writer)),
          std::string(WriterName(rank_.writer)));
    Equal("the DeepSpeed version", first_.version, rank_.version);
    Equal("the number of flat groups", StrCat(first_.flat.size()),
          StrCat(rank_.flat.size()));
    Equal("the number of param groups", StrCat(first_.param_groups.size()),
          StrCat(rank_.param_groups.size()));
    Equal("the run's config", first_.config, rank_.config);
    CompareLossScale();
    const size_t num_flat = std::min(first_.flat.size(), rank_.flat.size());
    for (size_t i = 0; i < num_flat; ++i) {
      CompareScalars(i);
    }
    const size_t num_groups =
        std::min(first_.param_groups.size(), rank_.param_groups.size());
    for (size_t i = 0; i < num_groups; ++i) {
      Equal(StrCat("hyper-parameters of param group ", i),
            RenderGroup(first_.param_groups[i]),
            RenderGroup(rank_.param_groups[i]));
    }
  }

 private:
  void Equal(const std::string& what, const std::string& expected,
             const std::string& found, const std::string& tensor = "") {
    if (expected == found) {
      return;
    }
    errors_.emplace_back(
        ErrorCode::kDataLoss, StrCat(what, " differs between ranks", kMixed),
        ErrorPlace{.file = rank_.file->path(),
                   .tensor = tensor,
                   .expected = StrCat(expected, " as in rank ", first_.rank),
                   .found = found});
  }

  // A rank of padding only has no state, and so no step to compare.
  void CompareScalars(size_t flat_group) {
    const FlatState& expected = first_.flat[flat_group];
    const FlatState& found = rank_.flat[flat_group];
    if (!expected.buffers.empty() && !found.buffers.empty()) {
      Equal("the optimizer's step", Render(expected.scalars),
            Render(found.scalars), StrCat("flat group ", flat_group, "/step"));
    }
  }

  void CompareLossScale() {
    if (first_.loss_scale && rank_.loss_scale) {
      Equal("the loss scale", FormatNumber(first_.loss_scale->scale),
            FormatNumber(rank_.loss_scale->scale));
      Equal("the loss scaler's state", Render(first_.loss_scale->counters),
            Render(rank_.loss_scale->counters));
    }
  }

  const RankStates& first_;
  const RankStates& rank_;
  std::vector<Error>& errors_;
};

void CheckRankCount(const Parts& parts, std::vector<Error>& errors) {
  const int64_t num_ranks = parts.directory.num_ranks();
  const int64_t world = parts.model->dp_world_size;
  if (world > 0 && world != num_ranks) {
    errors.emplace_back(
        ErrorCode::kDataLoss,
        world > num_ranks
            ? "the model file counts more ranks than are possible"
            : StrCat("there are files of more ranks than the run had", kMixed),
        ErrorPlace{.file = parts.model->file->path(),
                   .expected = StrCat("dp_world_size ", world),
                   .found = StrCat(num_ranks, " rank files")});
  }
  for (const RankStates& rank : parts.ranks) {
    for (const int64_t count : rank.partition_count) {
      if (count != num_ranks) {
        errors.emplace_back(
            ErrorCode::kDataLoss,
            "the file was written by a run with another number of ranks",
            ErrorPlace{.file = rank.file->path(),
                       .expected = StrCat(num_ranks, " ranks"),
                       .found = StrCat("partition_count ", count)});
        break;
      }
    }
  }
}

// torch.save names the root folder of the zip after the file, so a copied or
// renamed rank file gives itself away.
void CheckOwnRank(const RankStates& rank, std::vector<Error>& errors) {
  const auto written = ParseOptimFileName(rank.file->archive_root() + ".pt");
  if (written && written->rank != rank.rank) {
    errors.emplace_back(
        ErrorCode::kDataLoss,
        "the file was written by another rank: a copied or renamed file",
        ErrorPlace{.file = rank.file->path(),
                   .expected = StrCat("rank ", rank.rank),
                   .found = StrCat("rank ", written->rank)});
  }
}

std::vector<int64_t> AlignmentPaddings(const RankStates& rank, size_t group) {
  return group < rank.alignment_paddings.size() ? rank.alignment_paddings[group]
                                                : std::vector<int64_t>();
}

// The claims that a rank's file should make for a flat group.
std::map<std::string, std::pair<int64_t, int64_t>> ExpectedClaims(
    const Layout& layout, int32_t rank, int32_t flat_group) {
  std::map<std::string, std::pair<int64_t, int64_t>> expected;
  const Partitioning& partitioning = layout.partitioning;
  const FlatGroup& group =
      partitioning.groups()[static_cast<size_t>(flat_group)];
  for (const int32_t position :
       partitioning.parameters_on_rank(rank, flat_group)) {
    const int32_t parameter = group.parameters[static_cast<size_t>(position)];
    const int64_t numel =
        layout.specs[static_cast<size_t>(parameter)].shape.num_elements();
    const int64_t begin = group.offsets[static_cast<size_t>(position)] -
                          rank * group.partition_elements;
    const int64_t start = std::max<int64_t>(0, begin);
    const int64_t end = std::min(group.partition_elements, begin + numel);
    expected[layout.specs[static_cast<size_t>(parameter)].name] = {start,
                                                                   end - start};
  }
  return expected;
}

void CheckClaimsOfGroup(const Layout& layout, const RankStates& rank,
                        size_t group, std::vector<Error>& errors) {
  const auto expected =
      ExpectedClaims(layout, rank.rank, static_cast<int32_t>(group));
  for (const SliceClaim& claim : rank.slice_claims[group]) {
    const auto it = expected.find(claim.parameter);
    if (it != expected.end() &&
        it->second == std::pair(claim.start, claim.num_elements)) {
      continue;
    }
    errors.emplace_back(
        ErrorCode::kDataLoss,
        "param_slice_mappings places the parameter elsewhere than the layout: "
        "a file of another rank or run",
        ErrorPlace{.file = rank.file->path(),
                   .tensor = claim.parameter,
                   .expected = it == expected.end()
                                   ? "no element on this rank"
                                   : StrCat(it->second.second, " elements at ",
                                            it->second.first),
                   .found = StrCat(claim.num_elements, " at ", claim.start)});
    return;  // One says it all; the rest follows from it.
  }
}

// What group_paddings should say.
int64_t ExpectedPadding(const Partitioning& partitioning,
                        const RankStates& rank, size_t flat_group) {
  if (rank.writer != Writer::kBf16) {
    return partitioning.tail_padding(rank.rank,
                                     static_cast<int32_t>(flat_group));
  }
  // BF16_Optimizer gives the last rank the padding of all ranks.
  const FlatGroup& group = partitioning.groups()[flat_group];
  const bool is_last = rank.rank == partitioning.num_ranks() - 1;
  return is_last ? group.partition_elements * partitioning.num_ranks() -
                       group.num_elements
                 : 0;
}

}  // namespace

void AppendErrors(std::vector<Error> from, std::vector<Error>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()),
            std::make_move_iterator(from.end()));
}

std::vector<Error> CheckAgreement(const Parts& parts) {
  std::vector<Error> errors;
  CheckRankCount(parts, errors);
  for (const RankStates& rank : parts.ranks) {
    CheckOwnRank(rank, errors);
    Comparison(parts.ranks[0], rank, errors).Run();
  }
  return errors;
}

std::vector<Error> CheckPaddings(const Parts& parts) {
  std::vector<Error> errors;
  const Partitioning& partitioning = parts.layout->partitioning;
  for (const RankStates& rank : parts.ranks) {
    if (rank.stage == 3) {
      continue;
    }
    for (size_t g = 0; g < partitioning.groups().size(); ++g) {
      const int64_t expected = ExpectedPadding(partitioning, rank, g);
      const int64_t found =
          g < rank.group_paddings.size() ? rank.group_paddings[g] : -1;
      if (expected != found) {
        errors.emplace_back(
            ErrorCode::kDataLoss,
            StrCat("the padding of flat group ", g, " contradicts the layout"),
            ErrorPlace{.file = rank.file->path(),
                       .expected = StrCat(expected),
                       .found = StrCat(found)});
      }
      if (AlignmentPaddings(rank, g) != AlignmentPaddings(parts.ranks[0], g)) {
        errors.emplace_back(
            ErrorCode::kDataLoss,
            StrCat("param_alignment_paddings differ between ranks", kMixed),
            ErrorPlace{.file = rank.file->path()});
      }
    }
  }
  return errors;
}

std::vector<Error> CheckSliceClaims(const Parts& parts) {
  std::vector<Error> errors;
  if (parts.model->config.round_robin) {
    return errors;
  }
  for (const RankStates& rank : parts.ranks) {
    const size_t groups = std::min(rank.slice_claims.size(),
                                   parts.layout->partitioning.groups().size());
    for (size_t g = 0; g < groups; ++g) {
      CheckClaimsOfGroup(*parts.layout, rank, g, errors);
    }
  }
  return errors;
}

}  // namespace muonstore::deepspeed
