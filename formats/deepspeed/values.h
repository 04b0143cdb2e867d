// Small readers for the values that DeepSpeed puts into its files.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_VALUES_H_
#define MUONSTORE_FORMATS_DEEPSPEED_VALUES_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/torchfile/torch_file.h"
#include "formats/torchfile/value.h"
#include "muonstore/checkpoint.h"

namespace muonstore::deepspeed {

// Follows dict keys; nullopt where one is absent or no dict is met.
std::optional<torchfile::Value> Lookup(
    std::optional<torchfile::Value> value,
    std::initializer_list<std::string_view> keys);

// The value at the end of the path if it has the type, else nullopt ("auto" in
// a config is no number).
std::optional<bool> LookupBool(const std::optional<torchfile::Value>& value,
                               std::initializer_list<std::string_view> keys);
std::optional<int64_t> LookupInt(const std::optional<torchfile::Value>& value,
                                 std::initializer_list<std::string_view> keys);
std::optional<std::string> LookupString(
    const std::optional<torchfile::Value>& value,
    std::initializer_list<std::string_view> keys);

// A number, string, bool, none or list of numbers as it is; anything else as
// its short rendering. A tensor with one element is read from the file.
Scalar ToScalar(const torchfile::TorchFile& file, torchfile::Value value);

// True for plain numbers and for tensors without dimensions.
bool IsScalarState(torchfile::Value value);

// Something other than none and an empty dict.
bool HasContent(const std::optional<torchfile::Value>& value);

// A list of non-negative integers; anything else is Error(kDataLoss).
std::vector<int64_t> ToIntList(torchfile::Value value);

// Numeric: "0.18.9" is before 0.19.6. An unknown version counts as new.
bool VersionBefore(std::string_view version, const std::array<int, 3>& limit);

// The entries of a dict that maps names to torch.Size.
struct NamedShape {
  std::string name;
  Shape shape;
};
std::vector<NamedShape> ToNamedShapes(torchfile::Value value);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_VALUES_H_
