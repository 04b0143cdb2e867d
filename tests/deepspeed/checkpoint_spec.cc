#include "tests/deepspeed/checkpoint_spec.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

#include "tests/oracle/float_oracle.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::deepspeed {
namespace {

uint16_t Pattern(int64_t label) {
  return static_cast<uint16_t>(0x0400 + label);
}

float FromPattern(DType dtype, uint16_t pattern) {
  return static_cast<float>(oracle::Decode(
      dtype == DType::kF16 ? oracle::kHalf : oracle::kBrain, pattern));
}

}  // namespace

int64_t CountOf(const oracle::Parameter& parameter) {
  int64_t count = 1;
  for (const int64_t dim : parameter.dims) {
    count *= dim;
  }
  return count;
}

bool IsInGroup(const oracle::Parameter& parameter) {
  return parameter.is_trained && CountOf(parameter) > 0;
}

std::string OptimFile(const CheckpointSpec& spec, int rank) {
  return std::string(spec.precision == DType::kBF16 ? "bf16_" : "") +
         "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_optim_states.pt";
}

std::string ModelFile(const CheckpointSpec& spec, int rank) {
  return (spec.rule.stage == 3 ? "zero_pp_rank_" + std::to_string(rank) + "_"
                               : std::string()) +
         "mp_rank_00_model_states.pt";
}

DType StoredDType(const CheckpointSpec& spec, std::string_view kind,
                  size_t flat_group) {
  if (kind == "weight" || kind == "buffer") {
    return spec.precision;
  }
  const bool is_swapped =
      spec.rule.stage == 3 &&
      static_cast<int>(flat_group % 2) == spec.swapped_parity;
  const bool is_f32 = kind != "momentum" || is_swapped || spec.bf16_optimizer ||
                      (spec.offloaded && spec.rule.stage < 3);
  return is_f32 ? DType::kF32 : spec.momentum_dtype;
}

float ValueOf(const CheckpointSpec& spec, std::string_view kind, DType dtype,
              int64_t label) {
  if (dtype != DType::kF32) {
    return FromPattern(dtype, Pattern(label));
  }
  const auto number = static_cast<float>(label);
  if (kind == "momentum") {
    return number + 0.25F;
  }
  if (kind == "exp_avg") {
    return -number - 1;
  }
  if (kind == "exp_avg_sq") {
    return number + 0.5F;
  }
  // A master (or weight) is a bit above a value of the weights' dtype.
  const DType narrow =
      spec.precision == DType::kF16 ? DType::kF16 : DType::kBF16;
  return std::bit_cast<float>(
      std::bit_cast<uint32_t>(FromPattern(narrow, Pattern(label))) | 1U);
}

std::vector<int64_t> WholeLabels(const CheckpointSpec& spec,
                                 const oracle::Group& group, int rank) {
  const std::vector<int64_t> first = oracle::FirstLabels(spec.parameters);
  std::vector<int64_t> whole;
  for (const int parameter : group.order) {
    const auto index = static_cast<size_t>(parameter);
    const int64_t begin = first[index];
    const int64_t end = begin + CountOf(spec.parameters[index]);
    const oracle::Labels& labels = group.ranks[static_cast<size_t>(rank)];
    if (std::any_of(labels.begin(), labels.end(), [=](int64_t label) {
          return label >= begin && label < end;
        })) {
      for (int64_t label = begin; label < end; ++label) {
        whole.push_back(label);
      }
    }
  }
  return whole;
}

int64_t TailPadding(const oracle::Group& group, int rank) {
  oracle::Labels behind;  // From this rank's partition to the end.
  for (size_t r = static_cast<size_t>(rank); r < group.ranks.size(); ++r) {
    behind.insert(behind.end(), group.ranks[r].begin(), group.ranks[r].end());
  }
  const auto last_real =
      std::find_if(behind.rbegin(), behind.rend(),
                   [](int64_t label) { return label != oracle::kPadding; });
  const auto tail = static_cast<int64_t>(last_real - behind.rbegin());
  const auto later = static_cast<int64_t>(
      behind.size() - group.ranks[static_cast<size_t>(rank)].size());
  return std::max<int64_t>(0, tail - later);
}

std::string BytesOf(const CheckpointSpec& spec, std::string_view kind,
                    DType dtype, int64_t label) {
  const bool is_padding = label == oracle::kPadding;
  if (dtype != DType::kF32) {
    return torchfile::Bytes(is_padding ? uint16_t{0x7FFF} : Pattern(label));
  }
  return torchfile::Bytes(is_padding ? std::numeric_limits<float>::quiet_NaN()
                                     : ValueOf(spec, kind, dtype, label));
}

}  // namespace muonstore::deepspeed
