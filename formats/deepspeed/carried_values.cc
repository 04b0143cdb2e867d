#include "formats/deepspeed/carried_values.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "formats/deepspeed/values.h"

namespace muonstore::deepspeed {

using torchfile::Value;
using torchfile::ValueType;

namespace {

// Keys that DeepSpeed itself writes; every other key is client state.
constexpr std::array<std::string_view, 22> kOwnKeys = {
    "module",
    "buffer_names",
    "optimizer",
    "param_shapes",
    "frozen_param_shapes",
    "shared_params",
    "frozen_param_fragments",
    "lr_scheduler",
    "data_sampler",
    "random_ltd",
    "sparse_tensor_module_names",
    "skipped_steps",
    "global_steps",
    "global_samples",
    "dp_world_size",
    "mp_world_size",
    "checkpoint_parallel_dimensions",
    "ds_config",
    "ds_version",
    "universal_checkpoint_info",
    "ds_autoep_layers",
    "num_experts",
};

// Of these, the ones that hold state nobody interprets here.
constexpr std::array<std::string_view, 5> kCarriedKeys = {
    "optimizer", "lr_scheduler", "data_sampler", "random_ltd",
    "universal_checkpoint_info"};

template <size_t N>
bool Contains(const std::array<std::string_view, N>& keys,
              std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

std::vector<CarriedValue> CarriedValues(Value root) {
  std::vector<CarriedValue> carried;
  for (size_t i = 0; i < root.size(); ++i) {
    const auto [key, value] = root.entry(i);
    const std::string name = key.is(ValueType::kString)
                                 ? std::string(key.AsString())
                                 : key.Describe();
    const bool own = Contains(kOwnKeys, name);
    if (own && !(Contains(kCarriedKeys, name) && HasContent(value))) {
      continue;
    }
    carried.push_back({own ? name : "client_state." + name, value.Describe()});
  }
  return carried;
}

}  // namespace muonstore::deepspeed
