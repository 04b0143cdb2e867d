// Pickles written opcode by opcode.
#ifndef MUONSTORE_TESTS_TORCHFILE_PICKLE_BUILDER_H_
#define MUONSTORE_TESTS_TORCHFILE_PICKLE_BUILDER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile::pickle {

// Opcodes with a NUL or a high byte do not fit into string literals well.
inline std::string Proto(uint8_t protocol) { return "\x80" + Bytes(protocol); }
inline std::string Str(const std::string& text) {
  return "X" + Bytes(static_cast<uint32_t>(text.size())) + text;
}
inline std::string Int(int64_t value) { return "\x8a\x08" + Bytes(value); }
inline std::string GlobalName(const std::string& module,
                              const std::string& name) {
  return "c" + module + "\n" + name + "\n";
}
inline std::string Tuple(const std::vector<std::string>& items) {
  std::string out = "(";
  for (const std::string& item : items) {
    out += item;
  }
  return out + "t";
}
inline std::string Ints(const std::vector<int64_t>& values) {
  std::string out = "(";
  for (const int64_t value : values) {
    out += Int(value);
  }
  return out + "t";
}
// {key: value, ...}
inline std::string Dict(
    const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string out = "}(";
  for (const auto& [key, value] : entries) {
    out += Str(key) + value;
  }
  return out + "u";
}
inline std::string Call(const std::string& callee,
                        const std::vector<std::string>& args) {
  return callee + Tuple(args) + "R";
}

inline std::string OrderedDict() {
  return Call(GlobalName("collections", "OrderedDict"), {});
}

struct StorageId {
  std::string cls = "FloatStorage";
  std::string module = "torch";
  std::string key = "0";
  std::string location = "cpu";
  int64_t num_elements = 6;
};
inline std::string Storage(const StorageId& id = {}) {
  return Tuple({Str("storage"), GlobalName(id.module, id.cls), Str(id.key),
                Str(id.location), Int(id.num_elements)}) +
         "Q";
}

struct TensorArgs {
  std::string storage = Storage();
  int64_t offset = 0;
  std::vector<int64_t> size = {2, 3};
  std::vector<int64_t> stride = {3, 1};
  std::string requires_grad = "\x89";
  std::string metadata;  // The seventh argument, if any.
};
inline std::string Tensor(const TensorArgs& args = {}) {
  std::vector<std::string> call = {args.storage,       Int(args.offset),
                                   Ints(args.size),    Ints(args.stride),
                                   args.requires_grad, OrderedDict()};
  if (!args.metadata.empty()) {
    call.push_back(args.metadata);
  }
  return Call(GlobalName("torch._utils", "_rebuild_tensor_v2"), call);
}
inline std::string TensorV3(const TensorArgs& args, const std::string& dtype) {
  std::vector<std::string> call = {args.storage,
                                   Int(args.offset),
                                   Ints(args.size),
                                   Ints(args.stride),
                                   args.requires_grad,
                                   OrderedDict(),
                                   GlobalName("torch", dtype)};
  if (!args.metadata.empty()) {
    call.push_back(args.metadata);
  }
  return Call(GlobalName("torch._utils", "_rebuild_tensor_v3"), call);
}

// A whole pickle of protocol 2.
inline std::string Whole(const std::string& body) {
  return Proto(2) + body + ".";
}

// Payload of floats 1, 2, 3, ...
inline std::string Floats(int count, float first = 1) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += Bytes(first + static_cast<float>(i));
  }
  return out;
}

}  // namespace muonstore::torchfile::pickle

#endif  // MUONSTORE_TESTS_TORCHFILE_PICKLE_BUILDER_H_
