#include "formats/torchfile/tensor_paths.h"

#include <vector>

#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

constexpr size_t kMaxKeyBytes = 200;

bool IsContainer(ValueType type) {
  return type == ValueType::kDict || type == ValueType::kList ||
         type == ValueType::kTuple;
}

// One container on the way down.
struct Level {
  NodeId id = kNoNode;
  size_t next = 0;
  size_t path_size = 0;
};

std::string StepName(const Value& container, size_t index) {
  if (!container.is(ValueType::kDict)) {
    return StrCat("[", index, "]");
  }
  const Value key = container.entry(index).first;
  if (key.is(ValueType::kString)) {
    const std::string_view text = key.AsString();
    return StrCat("/", text.substr(0, kMaxKeyBytes));
  }
  return StrCat("/", key.is(ValueType::kInt) ? std::to_string(key.AsInt())
                                             : key.Describe(kMaxKeyBytes));
}

}  // namespace

void VisitTensors(const ValueTree& tree,
                  const std::function<void(const std::string& path,
                                           const TensorInfo& tensor)>& visit) {
  std::vector<bool> entered(tree.nodes.size(), false);
  std::vector<Level> levels;
  std::string path;
  const auto handle = [&](const Value& value) {
    if (value.is(ValueType::kTensor)) {
      visit(path, value.AsTensor());
    } else if (IsContainer(value.type()) && !entered[value.id()]) {
      entered[value.id()] = true;
      levels.push_back({value.id(), 0, path.size()});
    }
  };
  handle(Value(tree, tree.root));
  while (!levels.empty()) {
    Level& level = levels.back();
    path.resize(level.path_size);
    const Value container(tree, level.id);
    if (level.next == container.size()) {
      levels.pop_back();
      continue;
    }
    const size_t index = level.next++;
    path += StepName(container, index);
    handle(container.is(ValueType::kDict) ? container.entry(index).second
                                          : container.at(index));
  }
}

}  // namespace muonstore::torchfile
