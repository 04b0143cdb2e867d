#include "tests/deepspeed/checkpoint_writer.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "tests/testutil/scratch.h"
#include "tests/torchfile/pickle_builder.h"

namespace muonstore::deepspeed {
namespace {

namespace pickle = torchfile::pickle;
using Value = PythonValue;

std::string NameOf(int parameter) { return "p" + std::to_string(parameter); }

Value Enum(int64_t stage) {
  return Value::Raw(pickle::Call(
      pickle::GlobalName("deepspeed.runtime.zero.config", "ZeroStageEnum"),
      {pickle::Int(stage)}));
}

class Maker {
 public:
  explicit Maker(const CheckpointSpec& spec)
      : spec_(spec),
        stage_(spec.rule.stage),
        first_(oracle::FirstLabels(spec.parameters)),
        groups_(oracle::WriteFlat(spec.parameters, spec.rule)) {}

  CheckpointFiles Run() {
    for (int rank = 0; rank < spec_.rule.num_ranks; ++rank) {
      files_.torch_files.emplace(OptimFile(spec_, rank), MakeOptim(rank));
      if (rank == 0 || stage_ == 3) {
        files_.torch_files.emplace(ModelFile(spec_, rank), MakeModel(rank));
      }
    }
    return std::move(files_);
  }

 private:
  const oracle::Parameter& Parameter(int index) const {
    return spec_.parameters[static_cast<size_t>(index)];
  }

  bool IsMuon(const oracle::Group& group) const {
    return Parameter(group.order[0]).is_muon;
  }

  std::shared_ptr<std::string> Store(std::string_view kind, DType dtype,
                                     const oracle::Labels& labels) const {
    auto bytes = std::make_shared<std::string>();
    for (const int64_t label : labels) {
      *bytes += BytesOf(spec_, kind, dtype, label);
    }
    return bytes;
  }

  Value Flat(std::string_view kind, DType dtype, const oracle::Labels& labels,
             int64_t cut = 0) const {
    const auto size = static_cast<int64_t>(labels.size());
    return Value::Tensor({.dtype = dtype,
                          .shape = {std::max<int64_t>(0, size - cut)},
                          .storage = Store(kind, dtype, labels)});
  }

  oracle::Labels LabelsOf(int parameter) const {
    oracle::Labels labels;
    for (int64_t i = 0; i < CountOf(Parameter(parameter)); ++i) {
      labels.push_back(first_[static_cast<size_t>(parameter)] + i);
    }
    return labels;
  }

  bool IsSwapped(size_t flat_group) const {
    return stage_ == 3 && spec_.swapped_parity >= 0 &&
           static_cast<int>(flat_group % 2) == spec_.swapped_parity;
  }

  // An empty tensor that names its swap file.
  Value Swap(int rank, std::string_view kind, const std::string& ds_id,
             const oracle::Labels& labels) {
    // What lies behind the last element, to a whole block, is of no meaning.
    constexpr size_t kBlockBytes = 1024;
    const std::string folder = (rank < 10 ? "rank0" : "rank");
    std::string bytes = *Store(kind, DType::kF32, labels);
    bytes.resize((bytes.size() + kBlockBytes - 1) / kBlockBytes * kBlockBytes,
                 '\xFF');
    files_.swap_files["offloaded_tensors/" + folder + std::to_string(rank) +
                      "/" + ds_id + ".tensor.swp"] = std::move(bytes);
    return Value::Tensor({.shape = {0},
                          .storage = std::make_shared<std::string>(),
                          .ds_id = ds_id});
  }

  Value MakeMaster(int rank, size_t g) {
    const oracle::Labels& labels = groups_[g].ranks[static_cast<size_t>(rank)];
    if (IsSwapped(g)) {
      return Swap(rank, kMaster_, "7_" + std::to_string(g), labels);
    }
    const bool strip = stage_ < 3 && !spec_.bf16_optimizer;
    return Flat(kMaster_, DType::kF32, labels,
                strip ? TailPadding(groups_[g], rank) : 0);
  }

  Value MakeBuffer(int rank, size_t g, const std::string& ds_kind) {
    const std::string kind =
        ds_kind == "momentum_buffer" ? "momentum" : ds_kind;
    const oracle::Labels& labels = groups_[g].ranks[static_cast<size_t>(rank)];
    if (IsSwapped(g)) {
      return Swap(rank, kind, ds_kind + "-7_" + std::to_string(g), labels);
    }
    const bool whole = stage_ < 3 && kind == "momentum" && !spec_.offloaded &&
                       !spec_.bf16_optimizer;
    return Flat(kind, StoredDType(spec_, kind, g),
                whole ? WholeLabels(spec_, groups_[g], rank) : labels,
                spec_.elastic ? TailPadding(groups_[g], rank) : 0);
  }

  Value MakeState(int rank, size_t g) {
    Value state = Value::Dict();
    if (IsMuon(groups_[g])) {
      state.Set("momentum_buffer", MakeBuffer(rank, g, "momentum_buffer"));
      return state;
    }
    state.Set("step",
              spec_.step_is_tensor
                  ? Value::Tensor({.storage = std::make_shared<std::string>(
                                       torchfile::Bytes(5.0F))})
                  : Value::Int(5));
    state.Set("exp_avg", MakeBuffer(rank, g, "exp_avg"));
    state.Set("exp_avg_sq", MakeBuffer(rank, g, "exp_avg_sq"));
    return state;
  }

  bool HasState(int rank, size_t g) const {
    return spec_.state_on_empty_ranks ||
           !WholeLabels(spec_, groups_[g], rank).empty();
  }

  Value MakeParamGroups() const {
    Value list = Value::List();
    for (size_t g = 0; g < groups_.size();) {
      Value group = Value::Dict();
      group.Set("use_muon", Value::Bool(IsMuon(groups_[g])));
      group.Set("name", Value::Str("group" + std::to_string(g)));
      group.Set("lr", Value::Float(0.02));
      group.Set("betas", Value::List());
      group.Get("betas").Add(Value::Float(0.9));
      Value params = Value::List();
      const int id = groups_[g].group;
      for (; g < groups_.size() && groups_[g].group == id; ++g) {
        params.Add(Value::Int(static_cast<int64_t>(g)));
      }
      group.Set("params", params);
      list.Add(group);
    }
    return list;
  }

  Value MakeStates(int rank) {
    Value state = Value::Dict();
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (HasState(rank, g)) {
        state.SetInt(static_cast<int64_t>(g), MakeState(rank, g));
      }
    }
    Value base = Value::Dict();
    base.Set("state", state);
    base.Set("param_groups", MakeParamGroups());
    return base;
  }

  Value MakeElasticStates(int rank) {
    Value list = Value::List();
    for (size_t g = 0; g < groups_.size(); ++g) {
      list.Add(HasState(rank, g) ? MakeState(rank, g) : Value::Dict());
    }
    return list;
  }

  Value MakeMasters(int rank) {
    Value list = Value::List();
    for (size_t g = 0; g < groups_.size(); ++g) {
      list.Add(MakeMaster(rank, g));
    }
    return list;
  }

  Value MakePaddings(int rank) const {
    std::vector<int64_t> paddings;
    const int last = spec_.rule.num_ranks - 1;
    for (const oracle::Group& group : groups_) {
      int64_t padding = TailPadding(group, rank);
      if (spec_.bf16_optimizer) {
        // It counts the whole tail on the last rank.
        padding = 0;
        for (int other = 0; rank == last && other <= last; ++other) {
          padding += TailPadding(group, other);
        }
      }
      paddings.push_back(padding);
    }
    return Value::Ints(paddings);
  }

  Value MakeSliceMappings(int rank) const {
    Value list = Value::List();
    for (const oracle::Group& group : groups_) {
      Value mapping = Value::OrderedDict();
      const oracle::Labels& labels = group.ranks[static_cast<size_t>(rank)];
      for (const int parameter : group.order) {
        const oracle::Labels own = LabelsOf(parameter);
        const auto mine = [&own](int64_t label) {
          return label >= own.front() && label <= own.back();
        };
        const auto start = std::find_if(labels.begin(), labels.end(), mine);
        if (start == labels.end()) {
          continue;
        }
        Value address = Value::Dict();
        address.Set("numel", Value::Int(std::count_if(labels.begin(),
                                                      labels.end(), mine)));
        // DeepSpeed's are wrong with round-robin order.
        address.Set("start", Value::Int(start - labels.begin() +
                                        (spec_.rule.round_robin ? 1 : 0)));
        mapping.Set(NameOf(parameter),
                    Value::Object("deepspeed.utils.tensor_fragment",
                                  "fragment_address", address));
      }
      list.Add(mapping);
    }
    return list;
  }

  Value MakeLossScaler() const {
    Value attributes = Value::Dict();
    attributes.Set("cur_scale", Value::Float(1.0));
    attributes.Set("dynamic", Value::Bool(false));
    return Value::Object("deepspeed.runtime.fp16.loss_scaler", "LossScaler",
                         attributes);
  }

  Value MakeStage12(int rank) {
    Value optimizer = Value::Dict();
    if (!spec_.bf16_optimizer) {
      optimizer.Set("loss_scaler", MakeLossScaler());
      optimizer.Set("zero_stage", Enum(stage_));
    }
    optimizer.Set("base_optimizer_state",
                  spec_.elastic ? MakeElasticStates(rank) : MakeStates(rank));
    optimizer.Set("single_partition_of_fp32_groups", MakeMasters(rank));
    optimizer.Set("group_paddings", MakePaddings(rank));
    if (!spec_.bf16_optimizer && !spec_.empty_in_groups) {
      Value paddings = Value::List();
      for (const oracle::Group& group : groups_) {
        paddings.Add(Value::Ints(group.pad_after));
      }
      optimizer.Set("param_alignment_paddings", paddings);
    }
    optimizer.Set("partition_count",
                  Value::Ints(std::vector<int64_t>(groups_.size(),
                                                   spec_.rule.num_ranks)));
    optimizer.Set("ds_version", Value::Str(kVersion_));
    optimizer.Set("param_slice_mappings", MakeSliceMappings(rank));
    return optimizer;
  }

  Value MakeStage3(int rank) {
    Value optimizer = Value::Dict();
    optimizer.Set("zero_stage", Enum(3));
    optimizer.Set("loss_scaler", MakeLossScaler());
    optimizer.Set("partition_count", Value::Int(spec_.rule.num_ranks));
    optimizer.Set("optimizer_state_dict", MakeStates(rank));
    optimizer.Set("fp32_flat_groups", MakeMasters(rank));
    return optimizer;
  }

  Value MakeConfig() const {
    Value zero = Value::Dict();
    zero.Set("stage", Value::Int(stage_));
    zero.Set("round_robin_gradients", Value::Bool(spec_.rule.round_robin));
    const bool nvme = spec_.swapped_parity >= 0;
    if (spec_.offloaded || nvme) {
      Value offload = Value::Dict();
      offload.Set("device", Value::Str(nvme ? "nvme" : "cpu"));
      zero.Set("offload_optimizer", offload);
    }
    Value config = Value::Dict();
    config.Set("zero_optimization", zero);
    return config;
  }

  Value MakeOptim(int rank) {
    Value root = Value::Dict();
    root.Set("optimizer_state_dict",
             stage_ == 3 ? MakeStage3(rank) : MakeStage12(rank));
    root.Set("ds_config", MakeConfig());
    root.Set("ds_version", Value::Str(kVersion_));
    return root;
  }

  Value Whole(std::string_view kind, const std::vector<int64_t>& shape,
              const oracle::Labels& labels) const {
    return Value::Tensor({.dtype = spec_.precision,
                          .shape = shape,
                          .storage = Store(kind, spec_.precision, labels)});
  }

  Value Placeholder() const { return Whole("weight", {0}, {}); }

  // The compute weights: views of one storage a group.
  void AddTrainedWeights(std::map<int, Value>& weights) const {
    for (const oracle::Group& group : groups_) {
      oracle::Labels flat;
      for (const oracle::Labels& labels : group.ranks) {
        flat.insert(flat.end(), labels.begin(), labels.end());
      }
      const auto storage = Store("weight", spec_.precision, flat);
      for (const int parameter : group.order) {
        const auto at = std::find(flat.begin(), flat.end(),
                                  first_[static_cast<size_t>(parameter)]);
        weights[parameter] = Value::Tensor({.dtype = spec_.precision,
                                            .shape = Parameter(parameter).dims,
                                            .offset = at - flat.begin(),
                                            .storage = storage});
      }
    }
  }

  Value MakeModule() const {
    std::map<int, Value> weights;
    if (stage_ < 3) {
      AddTrainedWeights(weights);
    }
    Value module = Value::OrderedDict();
    for (int k = 0; k < static_cast<int>(spec_.parameters.size()); ++k) {
      if (stage_ < 3 && !weights.contains(k)) {
        weights[k] = Whole("weight", Parameter(k).dims, LabelsOf(k));
      }
      module.Set(NameOf(k), stage_ < 3 ? weights[k] : Placeholder());
    }
    if (spec_.tied) {
      module.Set("alias", stage_ < 3 ? weights[0] : Placeholder());
    }
    int64_t label = first_.back() + CountOf(spec_.parameters.back());
    for (int64_t i = 0; i < spec_.num_buffers; ++i) {
      module.Set("buffer" + std::to_string(i),
                 Whole("buffer", {2}, {label, label + 1}));
      label += 2;
    }
    return module;
  }

  Value MakeShapes() const {
    Value list = Value::List();
    for (size_t g = 0; g < groups_.size(); ++g) {
      const std::string empty = "e" + std::to_string(g) + "_";
      Value shapes = Value::OrderedDict();
      int position = 0;
      for (const int parameter : groups_[g].order) {
        if (spec_.empty_in_groups) {
          shapes.Set(empty + std::to_string(position++), Value::Size({0, 3}));
        }
        shapes.Set(NameOf(parameter), Value::Size(Parameter(parameter).dims));
      }
      if (spec_.empty_in_groups) {
        shapes.Set(empty + "last", Value::Size({2, 0}));
      }
      list.Add(shapes);
    }
    return list;
  }

  Value FrozenFragment(int parameter, int rank) const {
    oracle::Labels labels = LabelsOf(parameter);
    if (stage_ < 3) {
      return Whole("weight", Parameter(parameter).dims, labels);
    }
    const auto ranks = static_cast<size_t>(spec_.rule.num_ranks);
    while (labels.size() % ranks != 0) {
      labels.push_back(oracle::kPadding);
    }
    const auto size = static_cast<std::ptrdiff_t>(labels.size() / ranks);
    return Whole(
        "weight", {size},
        {labels.begin() + rank * size, labels.begin() + (rank + 1) * size});
  }

  void AddFrozen(int rank, Value& root) const {
    root.Set("frozen_param_shapes", Value());
    root.Set("frozen_param_fragments", Value());
    if (stage_ == 1) {
      return;
    }
    Value shapes = Value::OrderedDict();
    Value fragments = Value::OrderedDict();
    for (int k = 0; k < static_cast<int>(spec_.parameters.size()); ++k) {
      if (!IsInGroup(Parameter(k))) {
        shapes.Set(NameOf(k), Value::Size(Parameter(k).dims));
        fragments.Set(NameOf(k), FrozenFragment(k, rank));
      }
    }
    root.Set("frozen_param_shapes", shapes);
    root.Set("frozen_param_fragments", fragments);
  }

  Value MakeModel(int rank) const {
    Value root = Value::Dict();
    root.Set("module", MakeModule());
    Value names = Value::List();
    for (int64_t i = 0; i < spec_.num_buffers; ++i) {
      names.Add(Value::Str("buffer" + std::to_string(i)));
    }
    root.Set("buffer_names", names);
    root.Set("optimizer", Value());
    root.Set("param_shapes", MakeShapes());
    AddFrozen(rank, root);
    Value shared = Value::Dict();
    if (spec_.tied && rank == 0) {
      shared.Set("alias", Value::Str(NameOf(0)));
    }
    root.Set("shared_params", shared);
    root.Set("skipped_steps", Value::Int(0));
    root.Set("global_steps", Value::Int(5));
    root.Set("dp_world_size", Value::Int(spec_.rule.num_ranks));
    root.Set("mp_world_size", Value::Int(1));
    Value degrees = Value::Dict();
    degrees.Set("pp_degree", Value::Int(1));
    degrees.Set("tp_degree", Value::Int(1));
    root.Set("checkpoint_parallel_dimensions", degrees);
    root.Set("ds_config", MakeConfig());
    root.Set("ds_version", Value::Str(kVersion_));
    if (spec_.client_state) {
      root.Set("note", Value::Str("of the client"));
      root.SetInt(3, Value::Ints({1, 2}));
    }
    return root;
  }

  static constexpr const char* kVersion_ = "0.19.8";
  static constexpr const char* kMaster_ = "master";

  const CheckpointSpec& spec_;
  int stage_;
  std::vector<int64_t> first_;
  std::vector<oracle::Group> groups_;
  CheckpointFiles files_;
};

}  // namespace

void CheckpointFiles::Write(const std::filesystem::path& tag) const {
  for (const auto& [name, root] : torch_files) {
    testutil::WriteBytes(
        tag / name,
        TorchFileBytes(root, std::filesystem::path(name).stem().string()));
  }
  for (const auto& [name, bytes] : swap_files) {
    testutil::WriteBytes(tag / name, bytes);
  }
}

CheckpointFiles MakeCheckpoint(const CheckpointSpec& spec) {
  return Maker(spec).Run();
}

}  // namespace muonstore::deepspeed
