#include "formats/deepspeed/target_segments.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "formats/deepspeed/momentum_unit.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/partition/rank_parts.h"

namespace muonstore::deepspeed {
namespace {

using Kind = ModuleEntry::Kind;

int64_t CeilDivide(int64_t count, int64_t parts) {
  return count / parts + (count % parts != 0 ? 1 : 0);
}

void AddUnlessEmpty(std::string key, SinkSegment segment,
                    std::vector<KeyedSegment>& out) {
  if (segment.num_elements != 0) {
    out.push_back({std::move(key), std::move(segment)});
  }
}

}  // namespace

std::string StateKey(std::string_view kind, size_t flat_group) {
  return StrCat(kind, " of flat group ", flat_group);
}
std::string WeightsKey(size_t flat_group) {
  return StrCat("weights of flat group ", flat_group);
}
std::string TensorKeyOf(const std::string& name) {
  return StrCat("tensor ", name);
}
std::string FragmentKey(const std::string& name) {
  return StrCat("frozen fragment ", name);
}

TargetSegments::TargetSegments(const Target& target)
    : target_(target),
      momentum_factor_(
          MomentumFactor(target.source().info(), target.layout())) {
  kinds_.resize(target.partitioning().groups().size());
  for (size_t g = 0; g < kinds_.size(); ++g) {
    FindKinds(g);
  }
}

void TargetSegments::FindKinds(size_t flat_group) {
  const FlatGroup& group = target_.partitioning().groups()[flat_group];
  for (const int32_t parameter : group.parameters) {
    for (StateKind& kind :
         target_.index().StateKindsOf(target_.spec(parameter).name)) {
      auto& kinds = kinds_[flat_group];
      const bool is_known =
          std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
      if (kind != kMaster && !is_known) {
        kinds.push_back(std::move(kind));
      }
    }
  }
}

// DeepSpeed keeps whole matrices where it orthogonalizes them as they arrive.
bool TargetSegments::IsWhole(std::string_view kind, size_t flat_group) const {
  const FlatGroup& group = target_.partitioning().groups()[flat_group];
  return target_.writer() == Writer::kZero12 &&
         target_.layout().offload == "none" && kind == kMomentum &&
         !group.parameters.empty() &&
         target_.spec(group.parameters[0]).optimizer == Optimizer::kMuon;
}

size_t TargetSegments::Require(int32_t parameter, std::string_view kind) const {
  const std::string& name = target_.spec(parameter).name;
  const auto found = target_.index().Find(name, kind);
  if (!found) {
    throw Error(ErrorCode::kDataLoss,
                StrCat("the source has no ", kind,
                       " of this parameter, but of others of its group"),
                {.file = target_.source().info().path, .tensor = name});
  }
  const CheckpointTensor& tensor = target_.index().tensor(*found);
  if (tensor.shape.num_elements() !=
      target_.spec(parameter).shape.num_elements()) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("a ", kind,
                       " of another shape than its parameter has "
                       "no place in DeepSpeed's flat buffers"),
                {.file = target_.source().info().path,
                 .tensor = name,
                 .expected = target_.spec(parameter).shape.ToString(),
                 .found = tensor.shape.ToString()});
  }
  return *found;
}

// As stored. Float32, which holds them all exactly, where a group has several
// dtypes (swapped and resident momentum of an NVMe run) or values change.
DType TargetSegments::DTypeOf(std::string_view kind, size_t flat_group) const {
  const auto& parameters =
      target_.partitioning().groups()[flat_group].parameters;
  if (parameters.empty() || kind == kMaster ||
      FactorOf(kind, flat_group) != 1) {
    return DType::kF32;
  }
  const DType dtype =
      target_.index().tensor(Require(parameters[0], kind)).dtype;
  bool is_one = true;
  for (const int32_t parameter : parameters) {
    const DType other = target_.index().tensor(Require(parameter, kind)).dtype;
    is_one = is_one && other == dtype;
    if (other != dtype && (!IsFloatingPoint(other) || other == DType::kF64)) {
      throw Error(ErrorCode::kUnsupported,
                  StrCat("the ", kind, " of a group has several dtypes"),
                  {.file = target_.source().info().path,
                   .tensor = target_.spec(parameter).name,
                   .expected = std::string(DTypeName(dtype)),
                   .found = std::string(DTypeName(other))});
    }
  }
  return is_one ? dtype : DType::kF32;
}

double TargetSegments::FactorOf(std::string_view kind,
                                size_t flat_group) const {
  if (kind != kMomentum) return 1;
  return momentum_factor_ *
         ConventionFactor(target_.source().info(),
                          target_.partitioning().groups()[flat_group].group);
}

// All elements of every matrix that the rank owns a part of, back to back.
void TargetSegments::AddWhole(std::string_view kind, int32_t rank,
                              size_t flat_group, SinkSegment& segment) const {
  const FlatGroup& group = target_.partitioning().groups()[flat_group];
  for (const int32_t position : target_.partitioning().parameters_on_rank(
           rank, static_cast<int32_t>(flat_group))) {
    const int32_t parameter = group.parameters[static_cast<size_t>(position)];
    const int64_t numel = target_.spec(parameter).shape.num_elements();
    segment.pieces.push_back(
        {Require(parameter, kind), 0, segment.num_elements, numel});
    segment.num_elements += numel;
  }
}

SinkSegment TargetSegments::State(std::string_view kind, int32_t rank,
                                  size_t flat_group) const {
  SinkSegment segment;
  segment.name = StrCat("rank ", rank, " ", StateKey(kind, flat_group));
  segment.dtype = DTypeOf(kind, flat_group);
  segment.scale = FactorOf(kind, flat_group);
  if (IsWhole(kind, flat_group)) {
    AddWhole(kind, rank, flat_group, segment);
    return segment;
  }
  segment.num_elements =
      target_.partitioning().groups()[flat_group].partition_elements;
  for (const RankPart& part :
       PartsOnRank(target_.partitioning(), target_.layout().specs, rank,
                   static_cast<int32_t>(flat_group))) {
    segment.pieces.push_back({Require(part.parameter, kind), part.tensor_offset,
                              part.segment_offset, part.length});
  }
  return segment;
}

void TargetSegments::RequireDType(const ParameterSpec& spec,
                                  DType dtype) const {
  if (spec.weight_dtype != dtype) {
    throw Error(ErrorCode::kUnsupported,
                "DeepSpeed's flat buffers hold weights of one dtype",
                {.file = target_.source().info().path,
                 .tensor = spec.name,
                 .expected = std::string(DTypeName(dtype)),
                 .found = std::string(DTypeName(spec.weight_dtype))});
  }
}

// The flat buffer of compute weights over all ranks (stages 1 and 2).
SinkSegment TargetSegments::Weights(size_t flat_group) const {
  const FlatGroup& group = target_.partitioning().groups()[flat_group];
  SinkSegment segment;
  segment.name = WeightsKey(flat_group);
  segment.dtype = target_.spec(group.parameters[0]).weight_dtype;
  segment.num_elements = group.partition_elements * target_.num_ranks();
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const ParameterSpec& spec = target_.spec(group.parameters[i]);
    RequireDType(spec, segment.dtype);
    const int64_t numel = spec.shape.num_elements();
    if (numel == 0) {
      continue;
    }
    // A source without weights: round(master).
    const bool has_weight =
        target_.index().Find(spec.name, kWeight).has_value();
    segment.pieces.push_back(
        {Require(group.parameters[i], has_weight ? kWeight : kMaster), 0,
         group.offsets[i], numel});
  }
  return segment;
}

SinkSegment TargetSegments::WholeTensor(const ModuleEntry& entry) const {
  const CheckpointTensor& tensor = target_.index().tensor(entry.tensor);
  const int64_t numel = tensor.shape.num_elements();
  SinkSegment segment{
      .name = entry.name, .dtype = tensor.dtype, .num_elements = numel};
  segment.pieces.push_back({entry.tensor, 0, 0, numel});
  return segment;
}

int64_t TargetSegments::PieceElements(size_t tensor) const {
  return CeilDivide(target_.index().tensor(tensor).shape.num_elements(),
                    target_.num_ranks());
}

SinkSegment TargetSegments::Piece(const ModuleEntry& entry,
                                  int32_t rank) const {
  const CheckpointTensor& tensor = target_.index().tensor(entry.tensor);
  const int64_t piece = PieceElements(entry.tensor);
  SinkSegment segment{
      .name = StrCat("rank ", rank, " ", FragmentKey(entry.name)),
      .dtype = tensor.dtype,
      .num_elements = piece};
  const int64_t length =
      std::clamp<int64_t>(tensor.shape.num_elements() - rank * piece, 0, piece);
  if (length > 0) {
    segment.pieces.push_back({entry.tensor, rank * piece, 0, length});
  }
  return segment;
}

std::vector<KeyedSegment> TargetSegments::OfOptimFile(int32_t rank) const {
  std::vector<KeyedSegment> segments;
  for (size_t g = 0; g < kinds_.size(); ++g) {
    for (const StateKind& kind : kinds_[g]) {
      AddUnlessEmpty(StateKey(kind, g), State(kind, rank, g), segments);
    }
  }
  for (size_t g = 0; g < kinds_.size(); ++g) {
    AddUnlessEmpty(StateKey(kMaster, g), State(kMaster, rank, g), segments);
  }
  return segments;
}

std::vector<KeyedSegment> TargetSegments::OfModelFile(int32_t rank) const {
  const bool has_weights = target_.stage() < 3;
  std::vector<KeyedSegment> segments;
  std::unordered_set<std::string> seen;
  for (const ModuleEntry& entry : target_.module()) {
    const bool is_flat =
        entry.kind == Kind::kTrained || entry.kind == Kind::kTied;
    if (is_flat && has_weights) {
      const auto g = static_cast<size_t>(
          target_.partitioning().flat_group_of(entry.parameter));
      if (seen.insert(WeightsKey(g)).second) {
        AddUnlessEmpty(WeightsKey(g), Weights(g), segments);
      }
    } else if (entry.kind == Kind::kBuffer ||
               (entry.kind == Kind::kFrozen && has_weights)) {
      // Tied names share one tensor of the source.
      const std::string key =
          TensorKeyOf(target_.index().tensor(entry.tensor).key.parameter);
      if (seen.insert(key).second) {
        AddUnlessEmpty(key, WholeTensor(entry), segments);
      }
    }
  }
  for (const ModuleEntry& entry : target_.frozen()) {
    if (target_.stage() == 3) {
      AddUnlessEmpty(FragmentKey(entry.name), Piece(entry, rank), segments);
    }
  }
  return segments;
}

}  // namespace muonstore::deepspeed
