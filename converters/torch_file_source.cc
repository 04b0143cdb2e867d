#include "converters/torch_file_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "formats/torchfile/tensor_paths.h"
#include "src/base/str.h"

namespace muonstore {

using torchfile::Value;
using torchfile::ValueType;

namespace {

// Keys that stand for optimizer state in the state dicts of the field.
constexpr std::array<std::string_view, 5> kStateKeys = {
    "exp_avg", "exp_avg_sq", "momentum_buffer", "max_exp_avg_sq", "variance"};

// A tensor of stride 0 may repeat its storage; reading one must end.
constexpr uint64_t kMaxExpandedBytes = uint64_t{1} << 30;

// A hostile file could nest deep enough for its names to fill the memory.
constexpr size_t kMaxNameBytes = 4096;

// "/optimizer/state[0]/exp_avg" -> "optimizer.state.0", exp_avg.
TensorKey KeyOfPath(const std::string& path) {
  std::string name = path;
  StateKind kind(kWeight);
  const size_t slash = name.rfind('/');
  std::string_view last = path;
  last.remove_prefix(slash == std::string::npos ? 0 : slash + 1);
  if (slash != std::string::npos && slash > 0 &&
      std::find(kStateKeys.begin(), kStateKeys.end(), last) !=
          kStateKeys.end()) {
    kind = CanonicalStateKind(last);
    name.resize(slash);
  }
  std::replace(name.begin(), name.end(), '/', '.');
  std::replace(name.begin(), name.end(), '[', '.');
  std::erase(name, ']');
  return {name.substr(std::min<size_t>(1, name.size())), std::move(kind)};
}

}  // namespace

std::unique_ptr<TorchFileSource> TorchFileSource::Open(
    std::shared_ptr<FileSystem> fs, const std::string& path) {
  auto file = torchfile::TorchFile::Open(std::move(fs), path);
  const Value root = file->root();
  if (!root.is(ValueType::kDict) && !root.is(ValueType::kList) &&
      !root.is(ValueType::kTuple) && !root.is(ValueType::kTensor)) {
    throw Error(ErrorCode::kUnsupported,
                "the file holds no state dict; save model.state_dict()",
                {.file = path, .found = root.Describe(100)});
  }
  return std::unique_ptr<TorchFileSource>(new TorchFileSource(std::move(file)));
}

TorchFileSource::TorchFileSource(
    std::shared_ptr<const torchfile::TorchFile> file)
    : file_(std::move(file)) {
  info_.format = "torch file";
  info_.producer = "torch.save";
  info_.path = file_->path();
  info_.tag = std::filesystem::path(info_.path).filename().string();
  info_.total_bytes = file_->file_size_bytes();
  info_.num_files = 1;
  torchfile::VisitTensors(
      file_->tree(),
      [this](const std::string& path, const torchfile::TensorInfo& tensor) {
        AddTensor(path, tensor);
      });
}

void TorchFileSource::AddTensor(const std::string& path,
                                const torchfile::TensorInfo& info) {
  if (path.size() > kMaxNameBytes) {
    throw Error(ErrorCode::kUnsupported,
                "tensors are nested too deep for their names",
                {.file = file_->path(),
                 .tensor = Printable(path.substr(0, 60)),
                 .expected = StrCat("at most ", kMaxNameBytes, " bytes"),
                 .found = StrCat(path.size())});
  }
  TensorKey key = KeyOfPath(path);
  // Keys with dots or slashes may give two tensors one name.
  const std::string base = key.parameter;
  for (int copy = 2; !keys_.insert(key).second; ++copy) {
    key.parameter = StrCat(base, "#", copy);
  }
  const int64_t num_elements = info.shape.num_elements();
  segments_.push_back({.kind = key.kind,
                       .dtype = info.dtype,
                       .num_elements = num_elements,
                       .file = file_->path()});
  views_.push_back(&info);
  tensors_.push_back({.key = std::move(key),
                      .shape = info.shape,
                      .dtype = info.dtype,
                      .stored_bytes = static_cast<uint64_t>(CheckedMultiply(
                          num_elements, SizeBytes(info.dtype), "bytes"))});
}

std::vector<Fragment> TorchFileSource::fragments(size_t tensor) const {
  const int64_t num_elements = tensors_[tensor].shape.num_elements();
  if (num_elements == 0) {
    return {};
  }
  return {{.length = num_elements, .segment = static_cast<int32_t>(tensor)}};
}

void TorchFileSource::ReadSegment(int32_t segment, int64_t first_element,
                                  std::span<std::byte> out) const {
  const CheckpointTensor& tensor = tensors_[static_cast<size_t>(segment)];
  if (tensor.stored_bytes > file_->file_size_bytes() + kMaxExpandedBytes) {
    throw Error(ErrorCode::kUnsupported,
                "an expanded tensor, much larger than its file",
                {.file = file_->path(),
                 .tensor = tensor.key.ToString(),
                 .expected = StrCat("at most ", file_->file_size_bytes(),
                                    " bytes and a little"),
                 .found = StrCat(tensor.stored_bytes)});
  }
  file_->ReadElements(*views_[static_cast<size_t>(segment)], first_element,
                      out);
}

}  // namespace muonstore
