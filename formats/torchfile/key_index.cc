#include "formats/torchfile/key_index.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "formats/torchfile/dict_key.h"

namespace muonstore::torchfile {
namespace {

// Smaller dicts are searched one by one.
constexpr size_t kMinEntries = 16;

}  // namespace

void IndexKeys(ValueTree& tree, MemoryBudget& budget) {
  for (NodeId id = 0; id < tree.nodes.size(); ++id) {
    const std::span<const NodeId> items = tree.Items(id);
    const ValueType type = tree.nodes[id].type;
    if ((type != ValueType::kDict && type != ValueType::kObject) ||
        items.size() / 2 < kMinEntries) {
      continue;
    }
    std::vector<KeySlot> slots;
    budget.Grow(slots, items.size() / 2);
    for (uint32_t entry = 0; entry < items.size() / 2; ++entry) {
      const DictKey key = DictKey::Of(tree, items[2 * size_t{entry}]);
      if (key.is_searchable()) {
        slots.push_back({key.Hash(), entry});
      }
    }
    std::sort(slots.begin(), slots.end(),
              [](const KeySlot& x, const KeySlot& y) {
                return std::pair(x.hash, x.entry) < std::pair(y.hash, y.entry);
              });
    tree.key_slots.emplace(static_cast<uint32_t>(tree.nodes[id].value),
                           std::move(slots));
  }
}

}  // namespace muonstore::torchfile
