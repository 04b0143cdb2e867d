// The keys that dicts are searched by: ints and strings. Strings longer than
// kMaxTextBytes are found by nobody, so that hashing stays cheap.
#ifndef MUONSTORE_FORMATS_TORCHFILE_DICT_KEY_H_
#define MUONSTORE_FORMATS_TORCHFILE_DICT_KEY_H_

#include <cstdint>
#include <functional>
#include <string_view>

#include "formats/torchfile/value_tree.h"

namespace muonstore::torchfile {

struct DictKey {
  enum class Kind : uint8_t { kInt, kString, kOther };
  static constexpr size_t kMaxTextBytes = 4096;

  Kind kind = Kind::kOther;
  int64_t integer = 0;
  std::string_view text;  // Of the tree.

  static DictKey Of(const ValueTree& tree, NodeId id) {
    const Node& node = tree.nodes[id];
    if (node.type == ValueType::kInt) {
      return {Kind::kInt, node.value, {}};
    }
    if (node.type == ValueType::kString &&
        tree.Text(id).size() <= kMaxTextBytes) {
      return {Kind::kString, 0, tree.Text(id)};
    }
    return {};
  }

  bool is_searchable() const { return kind != Kind::kOther; }
  uint32_t Hash() const {
    return static_cast<uint32_t>(kind == Kind::kInt
                                     ? std::hash<int64_t>()(integer)
                                     : std::hash<std::string_view>()(text));
  }
  friend bool operator==(const DictKey&, const DictKey&) = default;
};

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_DICT_KEY_H_
