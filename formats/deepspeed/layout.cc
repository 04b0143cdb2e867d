#include "formats/deepspeed/layout.h"

#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

std::string FirstName(const std::vector<NamedShape>& shapes) {
  return shapes.empty() ? "" : shapes[0].name;
}

// Elements of a rank's partition as the file itself shows them.
int64_t PartitionElementsInFile(const RankStates& rank, size_t flat_group) {
  const FlatBuffer& master = *rank.flat[flat_group].master;
  if (rank.writer != Writer::kZero12) {
    return master.num_elements;  // 0 when swapped: computed from the shapes.
  }
  if (flat_group >= rank.group_paddings.size()) {
    throw Error(ErrorCode::kDataLoss, "group_paddings is too short",
                {.expected = StrCat(rank.flat.size(), " entries"),
                 .found = StrCat(rank.group_paddings.size())});
  }
  return CheckedAdd(master.num_elements, rank.group_paddings[flat_group],
                    "partition elements");
}

class LayoutBuilder {
 public:
  LayoutBuilder(const ModelStates& model, const RankStates& rank0,
                int32_t num_ranks)
      : model_(model), rank0_(rank0) {
    rule_.stage = rank0.stage;
    rule_.num_ranks = num_ranks;
    for (const NamedTensor& named : model.module) {
      weight_dtypes_.emplace(named.name, model.tensor(named).dtype);
    }
  }

  Layout Run() {
    if (model_.param_shapes.size() != rank0_.flat.size()) {
      throw Error(ErrorCode::kDataLoss,
                  "param_shapes and the optimizer state list different numbers "
                  "of flat groups: files of different saves?",
                  {.file = rank0_.file->path(),
                   .expected = StrCat(model_.param_shapes.size()),
                   .found = StrCat(rank0_.flat.size())});
    }
    MapGroups();
    std::vector<FlatGroup> flat_groups;
    for (size_t i = 0; i < model_.param_shapes.size(); ++i) {
      flat_groups.push_back(AddFlatGroup(i));
    }
    Partitioning partitioning =
        Partitioning::FromGroups(specs_, rule_, std::move(flat_groups));
    for (size_t i = 0; i < model_.param_shapes.size(); ++i) {
      CheckPartitionElements(partitioning, i);
    }
    return {std::move(specs_), std::move(groups_), std::move(partitioning)};
  }

 private:
  void MapGroups() {
    const size_t num_flat = rank0_.flat.size();
    group_of_flat_.resize(num_flat);
    for (size_t i = 0; i < num_flat; ++i) {
      group_of_flat_[i] = static_cast<int32_t>(i);
    }
    if (rank0_.param_groups.empty()) {
      groups_.resize(num_flat);  // An elastic file names no groups.
    }
    for (size_t g = 0; g < rank0_.param_groups.size(); ++g) {
      const ParamGroupState& group = rank0_.param_groups[g];
      groups_.push_back(
          {.name = group.name, .hyper_parameters = group.hyper_parameters});
      for (const int64_t flat : group.flat_groups) {
        if (flat >= static_cast<int64_t>(num_flat)) {
          throw Error(ErrorCode::kDataLoss,
                      "a param group names a flat group that does not exist",
                      {.file = rank0_.file->path(),
                       .expected = StrCat("below ", num_flat),
                       .found = StrCat(flat)});
        }
        group_of_flat_[static_cast<size_t>(flat)] = static_cast<int32_t>(g);
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].name.empty()) {
        groups_[g].name = StrCat("group ", g);
      }
    }
  }

  Optimizer OptimizerOf(size_t flat_group) const {
    const FlatState& flat = rank0_.flat[flat_group];
    const auto group = static_cast<size_t>(group_of_flat_[flat_group]);
    const auto use_muon = group < rank0_.param_groups.size()
                              ? rank0_.param_groups[group].use_muon
                              : std::nullopt;
    if (use_muon) {
      return *use_muon ? Optimizer::kMuon : Optimizer::kAdam;
    }
    // Lion keeps exp_avg alone.
    if (flat.Find(kExpAvg) != nullptr &&
        (flat.Find(kExpAvgSq) != nullptr ||
         model_.config.optimizer_type.find("Adam") != std::string::npos)) {
      return Optimizer::kAdam;
    }
    const bool muon_run = model_.config.optimizer_type == "Muon";
    return muon_run && flat.Find(kMomentum) != nullptr ? Optimizer::kMuon
                                                       : Optimizer::kOther;
  }

  FlatGroup AddFlatGroup(size_t index) {
    const auto group_index = static_cast<size_t>(group_of_flat_[index]);
    if (group_index >= groups_.size()) {
      throw Error(ErrorCode::kDataLoss, "a flat group is in no param group",
                  {.file = rank0_.file->path(),
                   .tensor = FirstName(model_.param_shapes[index])});
    }
    ParamGroup& group = groups_[group_index];
    group.optimizer = OptimizerOf(index);
    AddStep(rank0_.flat[index], group);
    FlatGroup flat{.group = static_cast<int32_t>(group_index)};
    for (const NamedShape& shape : model_.param_shapes[index]) {
      flat.parameters.push_back(static_cast<int32_t>(specs_.size()));
      AddSpec(shape, flat.group, group);
    }
    if (index < rank0_.alignment_paddings.size()) {
      flat.pad_after = rank0_.alignment_paddings[index];
    }
    // Only stages 1 and 2 may pad the end more than the shapes need.
    if (rank0_.stage < 3) {
      flat.partition_elements = PartitionElementsInFile(rank0_, index);
    }
    return flat;
  }

  static void AddStep(const FlatState& flat, ParamGroup& group) {
    for (const auto& [name, value] : flat.scalars) {
      const auto* step = std::get_if<int64_t>(&value);
      // gaps.h says what is wrong with a negative one.
      if (name == "step" && step != nullptr && *step >= 0) {
        group.step = *step;
      }
    }
  }

  void AddSpec(const NamedShape& shape, int32_t group_index,
               ParamGroup& group) {
    if (!names_.insert(shape.name).second) {
      throw Error(ErrorCode::kDataLoss, "the parameter is listed twice",
                  {.file = model_.file->path(), .tensor = shape.name});
    }
    const auto dtype = weight_dtypes_.find(shape.name);
    specs_.push_back({.name = shape.name,
                      .shape = shape.shape,
                      .weight_dtype = dtype == weight_dtypes_.end()
                                          ? DType::kF32
                                          : dtype->second,
                      .group = group_index,
                      .optimizer = group.optimizer});
    group.num_parameters += 1;
    group.num_elements =
        CheckedAdd(group.num_elements, shape.shape.num_elements(), "elements");
  }

  void CheckPartitionElements(const Partitioning& partitioning,
                              size_t index) const {
    const int64_t in_file = PartitionElementsInFile(rank0_, index);
    const FlatGroup& group = partitioning.groups()[index];
    const bool swapped = !rank0_.flat[index].master->swap_name.empty();
    if (in_file == group.partition_elements || swapped) {
      return;
    }
    throw Error(ErrorCode::kDataLoss,
                "the masters' partition does not fit the parameter shapes",
                {.file = rank0_.file->path(),
                 .tensor = FirstName(model_.param_shapes[index]) + "/master",
                 .expected = StrCat(group.partition_elements, " elements"),
                 .found = StrCat(in_file)});
  }

  const ModelStates& model_;
  const RankStates& rank0_;
  ZeroRule rule_;
  std::unordered_map<std::string, DType> weight_dtypes_;
  std::set<std::string> names_;
  std::vector<int32_t> group_of_flat_;
  std::vector<ParameterSpec> specs_;
  std::vector<ParamGroup> groups_;
};

}  // namespace

Layout BuildLayout(const ModelStates& model, const RankStates& rank0,
                   int32_t num_ranks) {
  try {
    return LayoutBuilder(model, rank0, num_ranks).Run();
  } catch (const Error& error) {
    // What makes no sense to the partitioning is damage: it comes from files.
    throw Error(ErrorCode::kDataLoss, error.message(), error.place())
        .WithFile(rank0.file->path());
  }
}

WholeMatrixForm::WholeMatrixForm(const Layout& layout, int32_t flat_group) {
  const Partitioning& partitioning = layout.partitioning;
  const FlatGroup& group =
      partitioning.groups()[static_cast<size_t>(flat_group)];
  first_parameter_ = group.parameters.empty() ? 0 : group.parameters[0];
  int64_t start = 0;
  start_.push_back(0);
  for (const int32_t parameter : group.parameters) {
    start = CheckedAdd(
        start,
        layout.specs[static_cast<size_t>(parameter)].shape.num_elements(),
        "elements");
    start_.push_back(start);
  }
  for (int32_t rank = 0; rank < partitioning.num_ranks(); ++rank) {
    std::vector<int32_t> parameters;
    for (const int32_t position :
         partitioning.parameters_on_rank(rank, flat_group)) {
      parameters.push_back(group.parameters[static_cast<size_t>(position)]);
    }
    by_rank_.push_back(std::move(parameters));
  }
}

int64_t WholeMatrixForm::num_elements(int32_t rank) const {
  const std::vector<int32_t>& parameters = by_rank_[static_cast<size_t>(rank)];
  if (parameters.empty()) {
    return 0;
  }
  const auto last = static_cast<size_t>(parameters.back() - first_parameter_);
  return start_[last + 1] -
         start_[static_cast<size_t>(parameters.front() - first_parameter_)];
}

int64_t WholeMatrixForm::offset(int32_t rank, int32_t parameter) const {
  const int32_t first = by_rank_[static_cast<size_t>(rank)].front();
  return start_[static_cast<size_t>(parameter - first_parameter_)] -
         start_[static_cast<size_t>(first - first_parameter_)];
}

}  // namespace muonstore::deepspeed
