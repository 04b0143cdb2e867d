#include "tests/deepspeed/convert_in_test.h"

#include <cstring>
#include <map>
#include <optional>

#include "src/base/str.h"
#include "src/os/output_root.h"
#include "tests/testutil/forwarding_file_system.h"

namespace muonstore::deepspeed {
namespace {

// The real files, without the waits for the disk: hundreds of conversions run.
class UnsyncedFile : public WritableFile {
 public:
  explicit UnsyncedFile(std::unique_ptr<WritableFile> file)
      : file_(std::move(file)) {}
  const std::string& path() const override { return file_->path(); }
  void WriteAt(uint64_t offset_bytes,
               std::span<const std::byte> data) override {
    file_->WriteAt(offset_bytes, data);
  }
  void Sync() override {}
  void Close() override { file_->Close(); }

 private:
  std::unique_ptr<WritableFile> file_;
};

class UnsyncedFileSystem : public testutil::ForwardingFileSystem {
 public:
  UnsyncedFileSystem() : ForwardingFileSystem(PosixFileSystem()) {}
  std::unique_ptr<WritableFile> CreateFile(const std::string& path) override {
    return std::make_unique<UnsyncedFile>(
        ForwardingFileSystem::CreateFile(path));
  }
  void SyncDirectory(const std::string& /*path*/) override {}
};

// Elements that the source lacks are zero.
std::vector<std::byte> ReadStored(const Checkpoint& source,
                                  const SinkPiece& piece) {
  const CheckpointTensor& tensor = source.tensors()[piece.tensor];
  const int64_t item = SizeBytes(tensor.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(piece.length * item));
  int64_t at = piece.tensor_offset;
  const int64_t end = at + piece.length;
  const auto read_until = [&](int64_t to) {
    if (to > at) {
      const auto begin = static_cast<size_t>((at - piece.tensor_offset) * item);
      ReadTensor(source, piece.tensor, {at, to},
                 std::span(bytes).subspan(
                     begin, static_cast<size_t>((to - at) * item)));
    }
  };
  for (const ElementRange& gap : tensor.missing) {
    if (gap.end > at && gap.begin < end) {
      read_until(gap.begin);
      at = gap.end;
    }
  }
  read_until(end);
  return bytes;
}

// Through floats where the dtype or the scale changes.
std::vector<std::byte> ReadPiece(const Checkpoint& source,
                                 const SinkPiece& piece, DType dtype,
                                 double scale = 1) {
  std::vector<std::byte> data = ReadStored(source, piece);
  const DType stored = source.tensors()[piece.tensor].dtype;
  if (stored == dtype && scale == 1) {
    return data;
  }
  std::vector<float> values(static_cast<size_t>(piece.length));
  ConvertToF32(stored, data, values);
  for (float& value : values) {
    value = static_cast<float>(value * scale);
  }
  data.resize(values.size() * static_cast<size_t>(SizeBytes(dtype)));
  ConvertFromF32(values, dtype, data);
  return data;
}

std::vector<std::byte> Fill(const Checkpoint& source,
                            const SinkSegment& segment) {
  const auto item = static_cast<size_t>(SizeBytes(segment.dtype));
  std::vector<std::byte> bytes(static_cast<size_t>(segment.num_elements) *
                               item);
  for (const SinkPiece& piece : segment.pieces) {
    const std::vector<std::byte> data =
        ReadPiece(source, piece, segment.dtype, segment.scale);
    std::memcpy(bytes.data() + static_cast<size_t>(piece.segment_offset) * item,
                data.data(), data.size());
  }
  return bytes;
}

}  // namespace

void FillAndCommit(const Checkpoint& source, CheckpointSink& sink) {
  for (size_t i = 0; i < sink.num_files(); ++i) {
    const auto file = sink.CreateFile(i);
    for (size_t s = 0; s < file->segments().size(); ++s) {
      const std::vector<std::byte> bytes = Fill(source, file->segments()[s]);
      // In two pieces.
      const auto all = std::span(bytes);
      file->Append(s, all.first(all.size() / 2));
      file->Append(s, all.subspan(all.size() / 2));
    }
    file->Close();
  }
  sink.Commit();
}

TargetLayout OwnLayout(const DeepSpeedCheckpoint& source) {
  const Parts& parts = source.parts();
  ZeroRule rule;
  rule.stage = parts.ranks[0].stage;
  rule.num_ranks = source.info().num_ranks;
  const auto zero =
      Lookup(parts.model->file->root(), {"ds_config", "zero_optimization"});
  rule.sub_group_size =
      LookupInt(zero, {"sub_group_size"}).value_or(rule.sub_group_size);
  rule.round_robin =
      LookupBool(zero, {"round_robin_gradients"}).value_or(false);
  rule.parameter_alignment =
      LookupBool(zero, {"parameter_alignment"}).value_or(false);
  return {.specs = parts.layout->specs,
          .rule = rule,
          .partitioning = parts.layout->partitioning,
          .precision = source.info().precision,
          .offload = source.info().offload,
          .optimizer_class = source.info().optimizer_class};
}

std::string ToString(const Wish& wish) {
  return StrCat("stage ", wish.stage, " ranks ", wish.num_ranks, " offload ",
                wish.offload, " order ", static_cast<int>(wish.order), " sub ",
                wish.sub_group_size, " align ", wish.parameter_alignment);
}

TargetLayout LayoutOf(const Checkpoint& source, const Wish& wish) {
  std::vector<ParameterSpec> specs;
  std::map<std::string, DType> weights;
  for (const CheckpointTensor& tensor : source.tensors()) {
    if (tensor.key.kind == kWeight) {
      weights[tensor.key.parameter] = tensor.dtype;
    }
  }
  for (const CheckpointTensor& tensor : source.tensors()) {
    if (tensor.key.kind == kMaster) {
      specs.push_back({.name = tensor.key.parameter,
                       .shape = tensor.shape,
                       .weight_dtype = weights.contains(tensor.key.parameter)
                                           ? weights.at(tensor.key.parameter)
                                           : DType::kF32,
                       .group = tensor.group,
                       .optimizer = tensor.optimizer});
    }
  }
  const ZeroRule rule{.stage = wish.stage,
                      .num_ranks = wish.num_ranks,
                      .muon_order = wish.order,
                      .parameter_alignment = wish.parameter_alignment,
                      .sub_group_size = wish.sub_group_size};
  Partitioning partitioning = Partitioning::Build(specs, rule);
  return {.specs = std::move(specs),
          .rule = rule,
          .partitioning = std::move(partitioning),
          .precision = source.info().precision,
          .offload = wish.offload,
          .optimizer_class = wish.stage == 3 ? "DeepSpeedZeroOptimizer_Stage3"
                                             : "DeepSpeedZeroOptimizer"};
}

std::unique_ptr<DeepSpeedCheckpoint> ConvertTo(const Checkpoint& source,
                                               const TargetLayout& layout,
                                               const std::string& root,
                                               const std::string& tag) {
  {
    os::OutputRoot output(std::make_shared<UnsyncedFileSystem>(), root);
    const auto sink =
        MakeSink(source, layout, output, {.tag = tag, .overwrite = true});
    FillAndCommit(source, *sink);
  }
  return DeepSpeedCheckpoint::Open(PosixFileSystem(), root + "/" + tag, {});
}

std::string DifferenceOf(const Checkpoint& a, const Checkpoint& b) {
  for (size_t i = 0; i < a.tensors().size(); ++i) {
    const CheckpointTensor& tensor = a.tensors()[i];
    const auto other = FindTensor(b, tensor.key);
    if (!other && tensor.shape.num_elements() == 0) {
      continue;
    }
    if (!other) {
      return tensor.key.ToString() + " is in one only";
    }
    const CheckpointTensor& copy = b.tensors()[*other];
    const bool same_group =
        tensor.group == copy.group && tensor.optimizer == copy.optimizer;
    const int64_t count = tensor.shape.num_elements();
    const bool is_widened = copy.dtype == DType::kF32;
    if (tensor.shape != copy.shape || (!same_group && count != 0) ||
        (tensor.dtype != copy.dtype && !is_widened)) {
      return tensor.key.ToString() + " has another shape, dtype or group";
    }
    if (ReadPiece(a, {i, 0, 0, count}, copy.dtype) !=
        ReadPiece(b, {*other, 0, 0, count}, copy.dtype)) {
      return tensor.key.ToString() + " has other values";
    }
  }
  return "";
}

}  // namespace muonstore::deepspeed
