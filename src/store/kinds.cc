#include "src/store/kinds.h"

#include <algorithm>
#include <set>
#include <string>

#include "muonstore/copy_plan.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/tensor/training_dtype.h"

namespace muonstore {
namespace {

void RequireParameter(const ParameterSpec& parameter) {
  switch (parameter.optimizer) {
    case Optimizer::kNone:
    case Optimizer::kAdam:
      break;
    case Optimizer::kMuon:
      // By its logical shape: nothing is updated element-wise in silence.
      if (parameter.shape.rank() < 2) {
        throw Error(ErrorCode::kInvalidArgument,
                    "Muon needs a matrix; give this parameter to Adam",
                    {.tensor = parameter.name,
                     .expected = "two dimensions or more",
                     .found = StrCat("shape ", parameter.shape.ToString())});
      }
      static_cast<void>(parameter.layout.Resolve(parameter.shape));
      break;
    case Optimizer::kOther:
      throw Error(ErrorCode::kInvalidArgument,
                  "a state store updates by Muon or Adam only",
                  {.tensor = parameter.name,
                   .expected = "muon, adam or none",
                   .found = std::string(OptimizerName(parameter.optimizer))});
  }
  RequireTrainingDType(parameter.weight_dtype, ErrorCode::kInvalidArgument,
                       "compute weights have another dtype than this",
                       parameter.name);
}

// The parameters of a flat group share what its segments have one of.
void RequireUniform(std::span<const ParameterSpec> parameters,
                    const FlatGroup& group) {
  if (group.parameters.empty()) return;
  const ParameterSpec& first =
      parameters[static_cast<size_t>(group.parameters.front())];
  for (const int32_t index : group.parameters) {
    const ParameterSpec& parameter = parameters[static_cast<size_t>(index)];
    if (parameter.weight_dtype != first.weight_dtype) {
      throw Error(ErrorCode::kInvalidArgument,
                  StrCat("parameters of group ", group.group,
                         " have compute weights of different dtypes; put them "
                         "into groups of their own"),
                  {.tensor = parameter.name,
                   .expected = std::string(DTypeName(first.weight_dtype)),
                   .found = std::string(DTypeName(parameter.weight_dtype))});
    }
    if (parameter.optimizer != first.optimizer ||
        parameter.group != group.group) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the partitioning puts this parameter together with those of "
                  "another optimizer or param group",
                  {.tensor = parameter.name,
                   .expected = StrCat(OptimizerName(first.optimizer),
                                      ", group ", group.group),
                   .found = StrCat(OptimizerName(parameter.optimizer),
                                   ", group ", parameter.group)});
    }
  }
  // Sums of segments and arenas must stay within 64 bits.
  if (group.partition_elements > (int64_t{1} << 56)) {
    throw Error(ErrorCode::kResourceExhausted,
                "no machine holds a segment of this size",
                {.tensor = first.name,
                 .found = StrCat(group.partition_elements, " elements")});
  }
}

// A partitioning of other parameters would address memory that is not there.
void RequireCovered(const ParameterSpec& parameter, int32_t index,
                    const Partitioning& partitioning) {
  const bool trained = parameter.optimizer != Optimizer::kNone;
  if (parameter.group < 0 || parameter.group > (1 << 20)) {
    throw Error(ErrorCode::kInvalidArgument, "no such param group",
                {.tensor = parameter.name, .found = StrCat(parameter.group)});
  }
  const std::vector<Fragment> fragments = partitioning.fragments(index);
  const int64_t expected = trained ? parameter.shape.num_elements() : 0;
  if (!CheckCoverage(fragments, expected).complete()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the partitioning was built from another shape or optimizer of "
                "this parameter",
                {.tensor = parameter.name,
                 .expected = StrCat(expected, " elements, each once")});
  }
}

}  // namespace

size_t StoreKindIndex(std::string_view kind) {
  return static_cast<size_t>(
      std::find(kStoreKinds.begin(), kStoreKinds.end(), kind) -
      kStoreKinds.begin());
}

bool IsSavedKind(std::string_view kind) {
  return std::find(kSavedKinds.begin(), kSavedKinds.end(), kind) !=
         kSavedKinds.end();
}

bool HasKind(Optimizer optimizer, std::string_view kind) {
  if (optimizer != Optimizer::kMuon && optimizer != Optimizer::kAdam) {
    return false;
  }
  if (kind == kMomentum) return optimizer == Optimizer::kMuon;
  if (kind == kExpAvg || kind == kExpAvgSq) {
    return optimizer == Optimizer::kAdam;
  }
  return StoreKindIndex(kind) < kStoreKinds.size();
}

DType StoreDType(const ParameterSpec& parameter, std::string_view kind) {
  return kind == kWeight ? parameter.weight_dtype : DType::kF32;
}

void RequireStorable(std::span<const ParameterSpec> parameters,
                     const Partitioning& partitioning) {
  if (partitioning.num_parameters() !=
      static_cast<int64_t>(parameters.size())) {
    throw Error(ErrorCode::kInvalidArgument,
                "the partitioning was not built from these parameters",
                {.expected = StrCat(parameters.size(), " parameters"),
                 .found = StrCat(partitioning.num_parameters())});
  }
  std::set<std::string_view> names;
  for (const ParameterSpec& parameter : parameters) {
    RequireParameter(parameter);
    if (!names.insert(parameter.name).second) {
      throw Error(ErrorCode::kInvalidArgument, "two parameters have this name",
                  {.tensor = parameter.name});
    }
  }
  for (const FlatGroup& group : partitioning.groups()) {
    RequireUniform(parameters, group);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    RequireCovered(parameters[i], static_cast<int32_t>(i), partitioning);
  }
}

}  // namespace muonstore
