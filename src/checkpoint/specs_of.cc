#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "muonstore/load.h"
#include "src/state/recorded_layout.h"

namespace muonstore {
namespace {

DType WeightDTypeOf(const CheckpointInfo& info) {
  if (info.precision == "bf16") return DType::kBF16;
  return info.precision == "fp16" ? DType::kF16 : DType::kF32;
}

bool IsParameter(const CheckpointTensor& tensor) {
  return tensor.key.kind == kMaster || tensor.key.kind == kWeight;
}

}  // namespace

std::vector<ParameterSpec> SpecsOf(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  const auto tensors = checkpoint.tensors();
  std::map<std::string, DType, std::less<>> weights;
  for (const CheckpointTensor& tensor : tensors) {
    if (tensor.key.kind == kWeight) {
      weights.emplace(tensor.key.parameter, tensor.dtype);
    }
  }
  std::vector<ParameterSpec> specs;
  std::set<std::string, std::less<>> seen;
  for (const CheckpointTensor& tensor : tensors) {
    const std::string& name = tensor.key.parameter;
    if (!IsParameter(tensor) || info.aliases.contains(name) ||
        !seen.insert(name).second) {
      continue;
    }
    const auto weight = weights.find(name);
    specs.push_back(
        {.name = name,
         .shape = tensor.shape,
         .weight_dtype =
             weight == weights.end() ? WeightDTypeOf(info) : weight->second,
         .group = std::max(tensor.group, 0),
         .optimizer = tensor.group < 0 ? Optimizer::kNone : tensor.optimizer,
         .layout = RecordedLayout(info, name)});
  }
  if (specs.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the checkpoint holds no parameters", {.file = info.path});
  }
  std::map<std::string, size_t, std::less<>> order;
  for (const std::string& name : info.module_order) {
    order.emplace(name, order.size());
  }
  const bool is_ordered = std::all_of(
      specs.begin(), specs.end(),
      [&](const ParameterSpec& spec) { return order.contains(spec.name); });
  if (is_ordered) {
    std::stable_sort(specs.begin(), specs.end(),
                     [&](const ParameterSpec& a, const ParameterSpec& b) {
                       return order.at(a.name) < order.at(b.name);
                     });
  }
  return specs;
}

}  // namespace muonstore
