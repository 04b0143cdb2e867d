#include "tests/native/save.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "formats/native/file_names.h"

namespace muonstore::native {
namespace {

std::vector<std::byte> SegmentBytes(const SinkSegment& segment,
                                    const Checkpoint& source) {
  const auto element = static_cast<size_t>(SizeBytes(segment.dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(segment.num_elements) *
                               element);
  for (const SinkPiece& piece : segment.pieces) {
    ReadTensor(source, piece.tensor,
               {piece.tensor_offset, piece.tensor_offset + piece.length},
               std::span(bytes).subspan(
                   static_cast<size_t>(piece.segment_offset) * element,
                   static_cast<size_t>(piece.length) * element));
  }
  return bytes;
}

}  // namespace

TargetLayout LayoutOf(const Checkpoint& source, const ZeroRule& rule) {
  std::vector<ParameterSpec> specs;
  std::set<std::string> seen;
  for (const CheckpointTensor& tensor : source.tensors()) {
    if (tensor.group < 0 || tensor.key.kind == kWeight ||
        !seen.insert(tensor.key.parameter).second) {
      continue;
    }
    const auto weight =
        FindTensor(source, {tensor.key.parameter, StateKind(kWeight)});
    specs.push_back({.name = tensor.key.parameter,
                     .shape = tensor.shape,
                     .weight_dtype = weight ? source.tensors()[*weight].dtype
                                            : DType::kBF16,
                     .group = tensor.group,
                     .optimizer = tensor.optimizer});
  }
  Partitioning partitioning = Partitioning::Build(specs, rule);
  return {.specs = std::move(specs),
          .rule = rule,
          .partitioning = std::move(partitioning),
          .precision = source.info().precision,
          .offload = source.info().offload,
          .optimizer_class = source.info().optimizer_class};
}

void FillFile(CheckpointSink& sink, size_t file, const Checkpoint& source,
              size_t piece_bytes) {
  const auto out = sink.CreateFile(file);
  for (size_t s = 0; s < out->segments().size(); ++s) {
    const std::vector<std::byte> bytes =
        SegmentBytes(out->segments()[s], source);
    for (size_t at = 0; at < bytes.size(); at += piece_bytes) {
      out->Append(s, std::span(bytes).subspan(
                         at, std::min(piece_bytes, bytes.size() - at)));
    }
  }
  out->Close();
}

void Fill(CheckpointSink& sink, const Checkpoint& source, size_t piece_bytes) {
  for (size_t f = 0; f < sink.num_files(); ++f) {
    FillFile(sink, f, source, piece_bytes);
  }
}

std::string SaveIdIn(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::string id = SaveIdOf(entry.path().filename().string());
    if (!id.empty()) {
      return id;
    }
  }
  return "";
}

std::string Save(std::shared_ptr<FileSystem> fs, const std::string& root,
                 const SinkOptions& options, const Checkpoint& source,
                 const TargetLayout& layout) {
  os::OutputRoot output(std::move(fs), root);
  const auto sink = MakeNativeSink(output, options, source, layout);
  Fill(*sink, source);
  sink->Commit();
  return sink->path();
}

}  // namespace muonstore::native
