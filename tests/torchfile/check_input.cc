#include "tests/torchfile/check_input.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "formats/torchfile/tensor_paths.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile {
namespace {

constexpr int64_t kMaxElements = 5000;

bool MayBeThrown(ErrorCode code) {
  return code == ErrorCode::kDataLoss || code == ErrorCode::kUnsupported ||
         code == ErrorCode::kResourceExhausted;
}

// The first and the last elements; a view of few bytes may have very many.
void ReadEnds(const TorchFile& file, const TensorInfo& tensor) {
  const int64_t total = tensor.shape.num_elements();
  const int64_t count = std::min(total, kMaxElements);
  std::vector<std::byte> out(
      static_cast<size_t>(count * SizeBytes(tensor.dtype)));
  file.ReadElements(tensor, 0, out);
  file.ReadElements(tensor, total - count, out);
}

void UseValues(const TorchFile& file) {
  const ValueTree& tree = file.tree();
  for (NodeId id = 0; id < std::min<size_t>(tree.nodes.size(), 500); ++id) {
    if (Value(tree, id).Describe(100).size() > 100) {
      throw std::logic_error("a description is too long");
    }
  }
  if (file.root().is(ValueType::kDict)) {
    for (size_t i = 0; i < std::min<size_t>(file.root().size(), 100); ++i) {
      const Value key = file.root().entry(i).first;
      if (key.is(ValueType::kString) && key.AsString().size() < 4000) {
        file.root().Get(key.AsString());
      }
    }
  }
  VisitTensors(tree, [](const std::string&, const TensorInfo&) {});
}

}  // namespace

bool CheckFile(const std::string& bytes) {
  try {
    const auto file = OpenBytes(bytes);
    UseValues(*file);
    const size_t count = std::min<size_t>(file->tree().tensors.size(), 50);
    for (size_t i = 0; i < count; ++i) {
      ReadEnds(*file, file->tree().tensors[i]);
    }
    file->Verify();
    return true;
  } catch (const Error& e) {
    if (!MayBeThrown(e.code())) {
      throw;
    }
    return false;
  }
}

bool CheckPickle(const std::string& bytes) {
  std::string payload;
  for (int i = 0; i < 192; ++i) {
    payload += static_cast<char>(i);
  }
  return CheckFile(TorchZip(bytes, {payload, payload.substr(0, 24)}));
}

}  // namespace muonstore::torchfile
