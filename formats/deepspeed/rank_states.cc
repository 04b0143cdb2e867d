#include "formats/deepspeed/rank_states.h"

#include <algorithm>

#include "formats/deepspeed/values.h"
#include "src/base/str.h"

namespace muonstore::deepspeed {

using torchfile::Value;
using torchfile::ValueType;

namespace {

constexpr const char* kDsId = "ds_id";

// A swapped tensor is an empty placeholder that knows its swap file's name.
std::string SwapNameOf(Value value) {
  const torchfile::TensorInfo& tensor = value.AsTensor();
  if (tensor.shape.num_elements() != 0 ||
      tensor.attributes == torchfile::kNoNode) {
    return "";
  }
  const Value attributes(value.tree(), tensor.attributes);
  std::string name = LookupString(attributes, {kDsId}).value_or("");
  if (name.find('/') != std::string::npos || name.starts_with(".")) {
    throw Error(ErrorCode::kDataLoss, "a swap file name leaves its folder",
                {.found = Printable(name)});
  }
  return name;
}

FlatBuffer ToFlatBuffer(Value value, std::string_view what) {
  if (!value.is(ValueType::kTensor)) {
    throw Error(ErrorCode::kDataLoss, StrCat(what, " is no tensor"),
                {.found = value.Describe(60)});
  }
  const torchfile::TensorInfo& tensor = value.AsTensor();
  FlatBuffer buffer{.tensor = static_cast<uint32_t>(value.node().value),
                    .dtype = tensor.dtype,
                    .num_elements = tensor.shape.num_elements(),
                    .swap_name = SwapNameOf(value)};
  if (!buffer.swap_name.empty()) {
    buffer.dtype = DType::kF32;
  }
  return buffer;
}

class Parser {
 public:
  Parser(std::shared_ptr<const torchfile::TorchFile> file, int32_t rank) {
    states_.file = std::move(file);
    states_.rank = rank;
  }

  RankStates Run() {
    const Value root = states_.file->RequireDict();
    if (!root.Find("optimizer_state_dict")) {
      throw Error(ErrorCode::kDataLoss, "this is no optim_states file",
                  {.expected = "a dict with the key 'optimizer_state_dict'",
                   .found = root.Describe(80)});
    }
    if (const auto folding = root.Find("folding");
        folding && !folding->is_none()) {
      throw Error(ErrorCode::kUnsupported,
                  "checkpoints with expert folding are not supported");
    }
    const Value optimizer = root.Get("optimizer_state_dict");
    states_.version = LookupString(root, {"ds_version"}).value_or("unknown");
    states_.version.erase(states_.version.find_last_not_of(' ') + 1);
    ReadConfig(root);
    ReadWriter(optimizer);
    ReadLossScale(optimizer);
    ReadOwn(root);
    if (states_.writer == Writer::kZero3) {
      ReadStage3(optimizer);
    } else {
      ReadStage12(optimizer);
    }
    return std::move(states_);
  }

 private:
  void ReadConfig(Value root) {
    constexpr size_t kMaxText = 4096;
    states_.config_stage =
        LookupInt(root, {"ds_config", "zero_optimization", "stage"});
    for (const char* key :
         {"train_batch_size", "train_micro_batch_size_per_gpu",
          "gradient_accumulation_steps", "gradient_clipping", "optimizer",
          "bf16", "fp16", "zero_optimization"}) {
      if (const auto value = Lookup(root, {"ds_config", key})) {
        states_.config += StrCat(key, "=", value->Describe(kMaxText), " ");
      }
    }
  }

  void ReadWriter(Value optimizer) {
    const auto zero_stage = optimizer.Find("zero_stage");
    int64_t stage = 0;
    if (optimizer.Find("fp32_flat_groups")) {
      states_.writer = Writer::kZero3;
      stage = 3;
    } else if (!optimizer.Find("single_partition_of_fp32_groups")) {
      throw Error(ErrorCode::kUnsupported,
                  "the optimizer state is not ZeRO's (stages 1, 2 or 3)",
                  {.found = optimizer.Describe(80)});
    } else if (!zero_stage) {
      // Its files are those of stage 1, whatever stage the config names.
      states_.writer = Writer::kBf16;
      stage = 1;
    } else {
      // An enum object called with its number.
      const auto number =
          zero_stage->is(ValueType::kInt) ? zero_stage : zero_stage->arg(0);
      stage = number ? number->AsInt() : 0;
    }
    if (stage < 1 || stage > 3) {
      throw Error(ErrorCode::kUnsupported, "the ZeRO stage is not 1, 2 or 3",
                  {.found = StrCat(stage)});
    }
    if (stage == 3 && states_.writer != Writer::kZero3) {
      throw Error(ErrorCode::kDataLoss,
                  "the optimizer state contradicts its ZeRO stage",
                  {.expected = "fp32_flat_groups in stage 3",
                   .found = "single_partition_of_fp32_groups"});
    }
    states_.stage = static_cast<int32_t>(stage);
  }

  void ReadOwn(Value root) {
    const auto names = Lookup(root, {kOwnKey, kWithoutMomentum});
    for (size_t i = 0;
         names && names->is(ValueType::kList) && i < names->size(); ++i) {
      if (names->at(i).is(ValueType::kString)) {
        states_.without_momentum.emplace_back(names->at(i).AsString());
      }
    }
  }

  void ReadLossScale(Value optimizer) {
    const auto scaler = optimizer.Find("loss_scaler");
    if (!scaler || !scaler->is(ValueType::kObject)) {
      return;
    }
    LossScale scale;
    if (const auto current = scaler->Attribute("cur_scale")) {
      scale.scale = current->AsNumber();
    }
    if (const auto dynamic = scaler->Attribute("dynamic")) {
      scale.dynamic = dynamic->AsBool();
    }
    for (const char* name :
         {"cur_iter", "last_overflow_iter", "scale_window", "scale_factor",
          "cur_hysteresis", "delayed_shift", "min_scale"}) {
      if (const auto value = scaler->Attribute(name)) {
        scale.counters.emplace_back(name, ToScalar(*states_.file, *value));
      }
    }
    states_.loss_scale = std::move(scale);
  }

  void ReadStage3(Value optimizer) {
    const auto partition_groups = optimizer.Find("ds_zero_partition_groups");
    if (partition_groups && !partition_groups->is_none()) {
      throw Error(ErrorCode::kUnsupported,
                  "checkpoints with several ZeRO partition groups (experts) "
                  "are not supported");
    }
    ReadPartitionCount(optimizer);
    const Value inner = optimizer.Get("optimizer_state_dict");
    const Value masters = optimizer.Get("fp32_flat_groups");
    ReadParamGroups(inner.Get("param_groups"));
    const Value state = inner.Get("state");
    for (size_t i = 0; i < masters.size(); ++i) {
      FlatState flat;
      flat.master = ToFlatBuffer(masters.at(i), "fp32_flat_groups");
      ReadState(state.Find(static_cast<int64_t>(i)), flat);
      states_.flat.push_back(std::move(flat));
    }
  }

  void ReadStage12(Value optimizer) {
    ReadPartitionCount(optimizer);
    states_.group_paddings = ToIntList(optimizer.Get("group_paddings"));
    if (const auto paddings = optimizer.Find("param_alignment_paddings")) {
      for (size_t i = 0; i < paddings->size(); ++i) {
        states_.alignment_paddings.push_back(ToIntList(paddings->at(i)));
      }
    }
    ReadSliceClaims(optimizer);
    const Value base = optimizer.Get("base_optimizer_state");
    states_.elastic = base.is(ValueType::kList);
    if (!states_.elastic) {
      ReadParamGroups(base.Get("param_groups"));
    }
    const Value masters = optimizer.Get("single_partition_of_fp32_groups");
    for (size_t i = 0; i < masters.size(); ++i) {
      FlatState flat;
      flat.master =
          ToFlatBuffer(masters.at(i), "single_partition_of_fp32_groups");
      ReadState(StateOfGroup(base, i), flat);
      states_.flat.push_back(std::move(flat));
    }
  }

  std::optional<Value> StateOfGroup(Value base, size_t group) const {
    if (states_.elastic) {
      return group < base.size() ? std::optional(base.at(group)) : std::nullopt;
    }
    return base.Get("state").Find(static_cast<int64_t>(group));
  }

  void ReadState(const std::optional<Value>& state, FlatState& flat) {
    if (!state || state->is_none()) {
      return;
    }
    for (size_t i = 0; i < state->size(); ++i) {
      const auto [key, value] = state->entry(i);
      const std::string name(key.AsString());
      if (IsScalarState(value)) {
        flat.scalars.emplace_back(name, ToScalar(*states_.file, value));
        continue;
      }
      FlatBuffer buffer = ToFlatBuffer(value, name);
      // Older files name only the master's swap file.
      if (buffer.num_elements == 0 && buffer.swap_name.empty() && flat.master &&
          !flat.master->swap_name.empty()) {
        buffer.swap_name = name + "-" + flat.master->swap_name;
        buffer.dtype = DType::kF32;
      }
      flat.buffers.emplace_back(CanonicalStateKind(name), std::move(buffer));
    }
  }

  void ReadPartitionCount(Value optimizer) {
    const auto count = optimizer.Find("partition_count");
    if (!count) {
      return;
    }
    if (count->is(ValueType::kInt)) {
      states_.partition_count = {count->AsInt()};
    } else {
      states_.partition_count = ToIntList(*count);
    }
  }

  void ReadParamGroups(Value groups) {
    for (size_t i = 0; i < groups.size(); ++i) {
      ParamGroupState group;
      const Value entries = groups.at(i);
      for (size_t k = 0; k < entries.size(); ++k) {
        const auto [key, value] = entries.entry(k);
        ReadParamGroupEntry(std::string(key.AsString()), value, group);
      }
      states_.param_groups.push_back(std::move(group));
    }
  }

  void ReadParamGroupEntry(const std::string& name, Value value,
                           ParamGroupState& group) const {
    if (name == "params") {
      group.flat_groups = ToIntList(value);
    } else if (name == "name" && value.is(ValueType::kString)) {
      group.name = value.AsString();
    } else if (name == "use_muon" && value.is(ValueType::kBool)) {
      group.use_muon = value.AsBool();
    } else {
      group.hyper_parameters.emplace_back(name, ToScalar(*states_.file, value));
    }
  }

  void ReadSliceClaims(Value optimizer) {
    const auto mappings = optimizer.Find("param_slice_mappings");
    if (!mappings || !mappings->is(ValueType::kList)) {
      return;
    }
    for (size_t i = 0; i < mappings->size(); ++i) {
      std::vector<SliceClaim> claims;
      const Value mapping = mappings->at(i);
      for (size_t k = 0; k < mapping.size(); ++k) {
        const auto [name, address] = mapping.entry(k);
        const auto start = address.Attribute("start");
        const auto numel = address.Attribute("numel");
        if (start && numel) {
          claims.push_back(
              {std::string(name.AsString()), start->AsInt(), numel->AsInt()});
        }
      }
      states_.slice_claims.push_back(std::move(claims));
    }
  }

  RankStates states_;
};

}  // namespace

std::string_view WriterName(Writer writer) {
  switch (writer) {
    case Writer::kZero12:
      return "DeepSpeedZeroOptimizer";
    case Writer::kBf16:
      return "BF16_Optimizer";
    case Writer::kZero3:
      return "DeepSpeedZeroOptimizer_Stage3";
  }
  return "unknown";
}

const FlatBuffer* FlatState::Find(std::string_view kind) const {
  if (kind == kMaster) {
    return master ? &*master : nullptr;
  }
  const auto it =
      std::find_if(buffers.begin(), buffers.end(),
                   [kind](const auto& buffer) { return buffer.first == kind; });
  return it == buffers.end() ? nullptr : &it->second;
}

RankStates ReadRankStates(std::shared_ptr<FileSystem> fs,
                          const std::string& path, int32_t rank) {
  try {
    return Parser(torchfile::TorchFile::Open(std::move(fs), path), rank).Run();
  } catch (const Error& error) {
    throw error.WithFile(path);
  }
}

}  // namespace muonstore::deepspeed
