#include "converters/torch_file_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "src/base/str.h"

namespace muonstore {

using torchfile::Value;
using torchfile::ValueType;

namespace {

// Keys that stand for optimizer state in the state dicts of the field.
constexpr std::array<std::string_view, 5> kStateKeys = {
    "exp_avg", "exp_avg_sq", "momentum_buffer", "max_exp_avg_sq", "variance"};

bool IsContainer(Value value) {
  return value.is(ValueType::kDict) || value.is(ValueType::kList) ||
         value.is(ValueType::kTuple);
}

// Walks containers without recursion; shared and cyclic ones once.
class Walk {
 public:
  explicit Walk(const torchfile::TorchFile& file) : file_(file) {}

  template <typename OnTensor>
  void Run(const OnTensor& on_tensor) {
    stack_.push_back({file_.root(), {}});
    while (!stack_.empty()) {
      const Item item = std::move(stack_.back());
      stack_.pop_back();
      if (item.value.is(ValueType::kTensor)) {
        on_tensor(item.path, static_cast<uint32_t>(item.value.node().value));
      } else if (IsContainer(item.value) &&
                 seen_.insert(item.value.id()).second) {
        PushChildren(item);
      }
    }
  }

 private:
  struct Item {
    Value value;
    std::vector<std::string> path;
  };

  void PushChildren(const Item& item) {
    // Last first, so that the stack gives them in file order.
    for (size_t i = item.value.size(); i > 0; --i) {
      Item child{item.value, item.path};
      if (item.value.is(ValueType::kDict)) {
        const auto [key, value] = item.value.entry(i - 1);
        child.value = value;
        child.path.push_back(key.is(ValueType::kString)
                                 ? std::string(key.AsString())
                                 : KeyText(key));
      } else {
        child.value = item.value.at(i - 1);
        child.path.push_back(StrCat(i - 1));
      }
      if (child.value.is(ValueType::kTensor) || IsContainer(child.value)) {
        stack_.push_back(std::move(child));
      }
    }
  }

  static std::string KeyText(Value key) {
    return key.is(ValueType::kInt) ? StrCat(key.AsInt()) : key.Describe(60);
  }

  const torchfile::TorchFile& file_;
  std::vector<Item> stack_;
  std::unordered_set<torchfile::NodeId> seen_;
};

}  // namespace

std::unique_ptr<TorchFileSource> TorchFileSource::Open(
    std::shared_ptr<FileSystem> fs, const std::string& path) {
  auto file = torchfile::TorchFile::Open(std::move(fs), path);
  const Value root = file->root();
  if (!IsContainer(root) && !root.is(ValueType::kTensor)) {
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
  Walk(*file_).Run([this](const std::vector<std::string>& path,
                          uint32_t tensor) { AddTensor(path, tensor); });
}

void TorchFileSource::AddTensor(const std::vector<std::string>& path,
                                uint32_t tensor) {
  const torchfile::TensorInfo& info = file_->tree().tensors[tensor];
  size_t name_parts = path.size();
  StateKind kind(kWeight);
  const bool is_state =
      path.size() > 1 && std::find(kStateKeys.begin(), kStateKeys.end(),
                                   path.back()) != kStateKeys.end();
  if (is_state) {
    kind = CanonicalStateKind(path.back());
    name_parts -= 1;
  }
  std::string name;
  for (size_t i = 0; i < name_parts; ++i) {
    name += (i == 0 ? "" : ".") + path[i];
  }
  const int64_t num_elements = info.shape.num_elements();
  segments_.push_back({.kind = kind,
                       .dtype = info.dtype,
                       .num_elements = num_elements,
                       .file = file_->path()});
  indices_.push_back(tensor);
  tensors_.push_back({.key = {std::move(name), std::move(kind)},
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
  const uint32_t tensor = indices_[static_cast<size_t>(segment)];
  file_->ReadElements(file_->tree().tensors[tensor], first_element, out);
}

}  // namespace muonstore
