#include "formats/deepspeed/tensor_table.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "src/base/str.h"

namespace muonstore::deepspeed {
namespace {

int64_t PieceElements(int64_t num_elements, int64_t num_ranks) {
  return num_elements / num_ranks + (num_elements % num_ranks != 0 ? 1 : 0);
}

class TensorTableBuilder {
 public:
  TensorTableBuilder(const Parts& parts, SegmentTable* segments)
      : parts_(parts), segments_(segments) {
    const auto& specs = parts.layout->specs;
    for (size_t i = 0; i < specs.size(); ++i) {
      spec_of_name_.emplace(specs[i].name, i);
    }
  }

  TensorTable Run() {
    const auto flat_groups = parts_.layout->partitioning.groups();
    for (size_t g = 0; g < flat_groups.size(); ++g) {
      for (size_t p = 0; p < flat_groups[g].parameters.size(); ++p) {
        const size_t master = table_.tensors.size();
        for (size_t k = 0; k < parts_.table->kinds[g].size(); ++k) {
          AddState(g, p, k);
        }
        if (parts_.ranks[0].stage == 3) {
          AddDerivedWeight(master);
        }
      }
    }
    AddModule();
    if (parts_.ranks[0].stage == 3) {
      for (const NamedShape& shape : parts_.model->frozen_shapes) {
        AddFrozenPieces(shape);
      }
    }
    return std::move(table_);
  }

 private:
  void Add(CheckpointTensor tensor, TensorSource source) {
    table_.tensors.push_back(std::move(tensor));
    table_.sources.push_back(std::move(source));
  }

  void AddState(size_t flat_group, size_t position, size_t kind_index) {
    const FlatGroup& group = parts_.layout->partitioning.groups()[flat_group];
    const int32_t parameter = group.parameters[position];
    const ParameterSpec& spec =
        parts_.layout->specs[static_cast<size_t>(parameter)];
    const GroupKind& kind = parts_.table->kinds[flat_group][kind_index];
    CheckpointTensor tensor{.key = {spec.name, kind.kind},
                            .shape = spec.shape,
                            .dtype = kind.dtype,
                            .group = spec.group,
                            .optimizer = spec.optimizer};
    TensorSource source{.parameter = parameter,
                        .flat_group = flat_group,
                        .kind_index = kind_index};
    uint64_t copies = 1;
    if (kind.form == StoredForm::kWholeMatrices) {
      copies = RanksTouched(group, position, spec.shape.num_elements());
    }
    tensor.stored_bytes = copies * Bytes(spec.shape, kind.dtype);
    if (segments_ != nullptr && parts_.ranks[0].elastic) {
      tensor.missing = MissingOf(source, spec.shape.num_elements());
    }
    Add(std::move(tensor), std::move(source));
  }

  // ZeRO-3 files hold no weight of a trained parameter: it is its master,
  // rounded.
  void AddDerivedWeight(size_t master) {
    TensorSource source = table_.sources[master];
    CheckpointTensor weight = table_.tensors[master];
    weight.key.kind = kWeight;
    weight.dtype = parts_.layout->specs[static_cast<size_t>(source.parameter)]
                       .weight_dtype;
    weight.stored_bytes = 0;
    weight.derived = true;
    Add(std::move(weight), std::move(source));
  }

  static uint64_t Bytes(const Shape& shape, DType dtype) {
    return static_cast<uint64_t>(CheckedMultiply(
        shape.num_elements(), SizeBytes(dtype), "bytes of a tensor"));
  }

  static uint64_t RanksTouched(const FlatGroup& group, size_t position,
                               int64_t num_elements) {
    if (num_elements == 0) {
      return 0;
    }
    const int64_t begin = group.offsets[position];
    const int64_t size = group.partition_elements;
    return static_cast<uint64_t>((begin + num_elements - 1) / size -
                                 begin / size + 1);
  }

  // The elements behind the end of a rank's buffer, which this rank owns.
  std::vector<ElementRange> MissingOf(const TensorSource& source,
                                      int64_t num_elements) const {
    std::vector<ElementRange> missing;
    for (const Fragment& fragment :
         FragmentsOf(parts_, *segments_, source, num_elements)) {
      const Segment& segment =
          segments_->segments()[static_cast<size_t>(fragment.segment)];
      const int64_t present = std::clamp<int64_t>(
          segment.num_elements - fragment.segment_offset, 0, fragment.length);
      if (present < fragment.length) {
        missing.push_back({fragment.tensor_offset + present,
                           fragment.tensor_offset + fragment.length});
      }
    }
    return missing;
  }

  void AddModule() {
    const auto& names = parts_.model->buffer_names;
    const std::unordered_set<std::string> buffers(names.begin(), names.end());
    for (const NamedTensor& named : parts_.model->module) {
      const bool buffer = buffers.contains(named.name);
      // In stage 3 the parameters are placeholders without elements.
      const bool placeholder = parts_.ranks[0].stage == 3 && !buffer;
      if (!placeholder && !parts_.model->tied.contains(named.name)) {
        AddModuleTensor(named, buffer);
      }
    }
  }

  void AddModuleTensor(const NamedTensor& named, bool buffer) {
    const torchfile::TensorInfo& info = parts_.model->tensor(named);
    CheckpointTensor tensor{
        .key = {named.name, StateKind(buffer ? kBuffer : kWeight)},
        .shape = info.shape,
        .dtype = info.dtype,
        .stored_bytes = Bytes(info.shape, info.dtype)};
    const auto spec = spec_of_name_.find(named.name);
    if (spec != spec_of_name_.end()) {
      tensor.group = parts_.layout->specs[spec->second].group;
      tensor.optimizer = parts_.layout->specs[spec->second].optimizer;
    } else if (!buffer) {
      table_.frozen.push_back(named.name);
    }
    TensorSource source{.kind = TensorSource::Kind::kSingle};
    if (segments_ != nullptr) {
      source.segments = {segments_->AddTensor(parts_.model->file, named.tensor,
                                              0, tensor.key.kind)};
    }
    Add(std::move(tensor), std::move(source));
  }

  const NamedTensor& PieceOf(const ModelStates& model,
                             const NamedShape& shape) const {
    const auto& fragments = model.frozen_fragments;
    const auto it = std::find_if(
        fragments.begin(), fragments.end(),
        [&](const NamedTensor& named) { return named.name == shape.name; });
    const int64_t want =
        PieceElements(shape.shape.num_elements(), parts_.directory.num_ranks());
    const int64_t found =
        it == fragments.end() ? -1 : model.tensor(*it).shape.num_elements();
    if (found != want) {
      throw Error(ErrorCode::kDataLoss,
                  "the rank's piece of a frozen parameter is missing or has "
                  "another size",
                  {.file = model.file->path(),
                   .tensor = shape.name,
                   .expected = StrCat(want, " elements"),
                   .found = found < 0 ? "none" : StrCat(found)});
    }
    return *it;
  }

  void AddFrozenPieces(const NamedShape& shape) {
    const NamedTensor& first = PieceOf(*parts_.model, shape);
    const DType dtype = parts_.model->tensor(first).dtype;
    CheckpointTensor tensor{.key = {shape.name, StateKind(kWeight)},
                            .shape = shape.shape,
                            .dtype = dtype,
                            .stored_bytes = Bytes(shape.shape, dtype)};
    TensorSource source{.kind = TensorSource::Kind::kPieces};
    if (segments_ != nullptr) {
      AddPiece(*parts_.model, shape, 0, source);
      int32_t rank = 1;
      for (const ModelStates& model : parts_.other_models) {
        AddPiece(model, shape, rank++, source);
      }
    }
    table_.frozen.push_back(shape.name);
    Add(std::move(tensor), std::move(source));
  }

  void AddPiece(const ModelStates& model, const NamedShape& shape, int32_t rank,
                TensorSource& source) {
    const NamedTensor& piece = PieceOf(model, shape);
    const DType dtype = model.tensor(piece).dtype;
    const DType first =
        parts_.model->tensor(PieceOf(*parts_.model, shape)).dtype;
    if (dtype != first) {
      throw Error(ErrorCode::kDataLoss, "the dtype differs between ranks",
                  {.file = model.file->path(),
                   .tensor = shape.name,
                   .expected = std::string(DTypeName(first)),
                   .found = std::string(DTypeName(dtype))});
    }
    source.segments.push_back(
        segments_->AddTensor(model.file, piece.tensor, rank, kWeight));
  }

  const Parts& parts_;
  SegmentTable* segments_;
  std::unordered_map<std::string, size_t> spec_of_name_;
  TensorTable table_;
};

std::vector<Fragment> StateFragments(const Parts& parts,
                                     const SegmentTable& segments,
                                     const TensorSource& source) {
  const Partitioning& partitioning = parts.layout->partitioning;
  const auto num_groups = static_cast<int32_t>(partitioning.groups().size());
  const bool whole =
      parts.table->kinds[source.flat_group][source.kind_index].form ==
      StoredForm::kWholeMatrices;
  std::vector<Fragment> fragments = partitioning.fragments(source.parameter);
  for (Fragment& fragment : fragments) {
    const int32_t rank = fragment.segment / num_groups;
    fragment.segment =
        segments.StateSegment(rank, source.flat_group, source.kind_index);
    if (whole) {
      fragment.segment_offset = parts.table->whole[source.flat_group]->offset(
                                    rank, source.parameter) +
                                fragment.tensor_offset;
    }
  }
  return fragments;
}

std::vector<Fragment> PieceFragments(const TensorSource& source,
                                     int64_t num_elements) {
  std::vector<Fragment> fragments;
  const auto num_ranks = static_cast<int64_t>(source.segments.size());
  const int64_t piece = PieceElements(num_elements, num_ranks);
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const int64_t begin = rank * piece;
    if (begin < num_elements) {
      fragments.push_back(
          {.tensor_offset = begin,
           .length = std::min(piece, num_elements - begin),
           .segment = source.segments[static_cast<size_t>(rank)]});
    }
  }
  return fragments;
}

}  // namespace

TensorTable BuildTensorTable(const Parts& parts, SegmentTable* segments) {
  return TensorTableBuilder(parts, segments).Run();
}

std::vector<Fragment> FragmentsOf(const Parts& parts,
                                  const SegmentTable& segments,
                                  const TensorSource& source,
                                  int64_t num_elements) {
  if (num_elements == 0) {
    return {};
  }
  switch (source.kind) {
    case TensorSource::Kind::kState:
      return StateFragments(parts, segments, source);
    case TensorSource::Kind::kPieces:
      return PieceFragments(source, num_elements);
    case TensorSource::Kind::kSingle:
      return {{.length = num_elements, .segment = source.segments[0]}};
  }
  return {};
}

}  // namespace muonstore::deepspeed
