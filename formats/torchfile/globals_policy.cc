#include "formats/torchfile/globals_policy.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string>

#include "formats/torchfile/stdlib_modules.h"

namespace muonstore::torchfile {
namespace {

struct NamedRule {
  std::string_view module;
  std::string_view name;
  CallRule rule;
};

// Calls that are interpreted.
constexpr NamedRule kInterpreted[] = {
    {"torch._utils", "_rebuild_tensor", CallRule::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", CallRule::kRebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", CallRule::kRebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", CallRule::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state",
     CallRule::kRebuildParameterWithState},
    {"torch._tensor", "_rebuild_from_type", CallRule::kRebuildFromType},
    {"torch._tensor", "_rebuild_from_type_v2", CallRule::kRebuildFromType},
    // Where torch 1.8 and older kept them.
    {"torch.tensor", "_rebuild_from_type", CallRule::kRebuildFromType},
    {"torch.tensor", "_rebuild_from_type_v2", CallRule::kRebuildFromType},
    {"torch", "Size", CallRule::kSize},
    {"collections", "OrderedDict", CallRule::kDict},
    {"collections", "Counter", CallRule::kDict},
    {"collections", "defaultdict", CallRule::kDefaultDict},
    {"builtins", "set", CallRule::kSet},
    {"builtins", "frozenset", CallRule::kFrozenSet},
    {"builtins", "bytes", CallRule::kBytes},
    {"_codecs", "encode", CallRule::kEncode},
};

// Calls that are kept as they are although their module is suspect.
constexpr NamedRule kKept[] = {
    {"argparse", "Namespace", CallRule::kOpaque},
    {"builtins", "bool", CallRule::kOpaque},
    {"builtins", "bytearray", CallRule::kOpaque},
    {"builtins", "complex", CallRule::kOpaque},
    {"builtins", "dict", CallRule::kOpaque},
    {"builtins", "float", CallRule::kOpaque},
    {"builtins", "int", CallRule::kOpaque},
    {"builtins", "list", CallRule::kOpaque},
    {"builtins", "object", CallRule::kOpaque},
    {"builtins", "range", CallRule::kOpaque},
    {"builtins", "slice", CallRule::kOpaque},
    {"builtins", "str", CallRule::kOpaque},
    {"builtins", "tuple", CallRule::kOpaque},
    {"builtins", "xrange", CallRule::kOpaque},
    {"collections", "deque", CallRule::kOpaque},
    {"datetime", "date", CallRule::kOpaque},
    {"datetime", "datetime", CallRule::kOpaque},
    {"datetime", "time", CallRule::kOpaque},
    {"datetime", "timedelta", CallRule::kOpaque},
    {"datetime", "timezone", CallRule::kOpaque},
    {"decimal", "Decimal", CallRule::kOpaque},
    {"fractions", "Fraction", CallRule::kOpaque},
    {"pathlib", "Path", CallRule::kOpaque},
    {"pathlib", "PosixPath", CallRule::kOpaque},
    {"pathlib", "PurePath", CallRule::kOpaque},
    {"pathlib", "PurePosixPath", CallRule::kOpaque},
    {"pathlib", "PureWindowsPath", CallRule::kOpaque},
    {"pathlib", "WindowsPath", CallRule::kOpaque},
    {"time", "struct_time", CallRule::kOpaque},
    {"types", "SimpleNamespace", CallRule::kOpaque},
    {"uuid", "SafeUUID", CallRule::kOpaque},
    {"uuid", "UUID", CallRule::kOpaque},
    // torch.device and layouts, as plain values of a checkpoint.
    {"torch", "device", CallRule::kOpaque},
    {"torch.serialization", "_get_layout", CallRule::kOpaque},
    // Arrays, scalars and generators.
    {"numpy", "dtype", CallRule::kOpaque},
    {"numpy", "ndarray", CallRule::kOpaque},
    {"numpy.core.multiarray", "_reconstruct", CallRule::kOpaque},
    {"numpy.core.multiarray", "scalar", CallRule::kOpaque},
    {"numpy.core.numeric", "_frombuffer", CallRule::kOpaque},
    {"numpy.random._pickle", "__bit_generator_ctor", CallRule::kOpaque},
    {"numpy.random._pickle", "__generator_ctor", CallRule::kOpaque},
    {"numpy.random._pickle", "__randomstate_ctor", CallRule::kOpaque},
};

struct UnsupportedName {
  std::string_view name;  // In torch._utils.
  std::string_view what;
};

constexpr UnsupportedName kUnsupportedTensors[] = {
    {"_rebuild_sparse_tensor", "a sparse tensor"},
    {"_rebuild_sparse_csr_tensor", "a sparse tensor"},
    {"_rebuild_qtensor", "a quantized tensor"},
    {"_rebuild_meta_tensor_no_storage",
     "a tensor on the meta device, which has no data"},
    {"_rebuild_nested_tensor", "a nested tensor"},
    {"_rebuild_wrapper_subclass", "a tensor subclass that wraps other tensors"},
    {"_rebuild_device_tensor_from_numpy", "a device tensor stored as an array"},
    {"_rebuild_device_tensor_from_cpu_tensor",
     "a device tensor stored as a CPU tensor"},
    {"_rebuild_xla_tensor", "an XLA tensor stored as an array"},
};

struct NamedStorage {
  std::string_view name;
  StorageClass storage;
};

constexpr NamedStorage kStorageClasses[] = {
    {"DoubleStorage", {DType::kF64}},
    {"FloatStorage", {DType::kF32}},
    {"HalfStorage", {DType::kF16}},
    {"BFloat16Storage", {DType::kBF16}},
    {"LongStorage", {DType::kI64}},
    {"IntStorage", {DType::kI32}},
    {"ShortStorage", {DType::kI16}},
    {"CharStorage", {DType::kI8}},
    {"ByteStorage", {DType::kU8}},
    {"BoolStorage", {DType::kBool}},
    {"ComplexDoubleStorage", {DType::kC128}},
    {"ComplexFloatStorage", {DType::kC64}},
    {"ComplexHalfStorage", {DType::kC32}},
    {"UntypedStorage", {DType::kU8, true, false}},
    {"_UntypedStorage", {DType::kU8, true, false}},
    {"QInt8Storage", {DType::kI8, false, true}},
    {"QUInt8Storage", {DType::kU8, false, true}},
    {"QInt32Storage", {DType::kI32, false, true}},
    {"QUInt4x2Storage", {DType::kU8, false, true}},
    {"QUInt2x4Storage", {DType::kU8, false, true}},
};

// One name for modules that were renamed.
std::string_view CanonicalModule(std::string_view module) {
  struct Renamed {
    std::string_view from;
    std::string_view to;
  };
  static constexpr std::array<Renamed, 5> kRenamed = {{
      {"__builtin__", "builtins"},
      {"numpy._core.multiarray", "numpy.core.multiarray"},
      {"numpy._core.numeric", "numpy.core.numeric"},
      {"pathlib._local", "pathlib"},
      {"datetime._pydatetime", "datetime"},
  }};
  const auto* const found =
      std::find_if(kRenamed.begin(), kRenamed.end(),
                   [&](const Renamed& r) { return r.from == module; });
  return found == kRenamed.end() ? module : found->to;
}

const NamedRule* FindRule(std::span<const NamedRule> rules,
                          const Global& global) {
  const std::string_view module = CanonicalModule(global.module);
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const NamedRule& rule) {
        return rule.module == module && rule.name == global.name;
      });
  return found == rules.end() ? nullptr : &*found;
}

// "LossScaler", "_StorageInfo"; not "load", "_reconstructor", "__import__".
bool IsClassLike(std::string_view component) {
  const size_t first = component.find_first_not_of('_');
  return first != std::string_view::npos && component[first] >= 'A' &&
         component[first] <= 'Z';
}

bool IsClassLikePath(std::string_view name) {
  while (true) {
    const size_t dot = name.find('.');
    if (!IsClassLike(name.substr(0, dot))) {
      return false;
    }
    if (dot == std::string_view::npos) {
      return true;
    }
    name.remove_prefix(dot + 1);
  }
}

CallRule RuleByPackage(const Global& global) {
  const std::string_view module = global.module;
  const std::string_view package = module.substr(0, module.find('.'));
  if (IsCodeModule(package)) {
    return CallRule::kRefused;
  }
  // A plain function of a package that is not known to us stays opaque: some
  // dataclasses have such names (deepspeed's fragment_address).
  const bool known = package == "torch" || package == "numpy";
  const bool dotted = global.name.find('.') != std::string::npos;
  return (known || dotted) && !IsClassLikePath(global.name) ? CallRule::kRefused
                                                            : CallRule::kOpaque;
}

}  // namespace

CallRule RuleOfCall(const Global& global) {
  if (const NamedRule* rule = FindRule(kInterpreted, global)) {
    return rule->rule;
  }
  if (const NamedRule* rule = FindRule(kKept, global)) {
    return rule->rule;
  }
  return UnsupportedTensor(global).empty() ? RuleByPackage(global)
                                           : CallRule::kUnsupportedTensor;
}

std::string_view UnsupportedTensor(const Global& global) {
  if (global.module != "torch._utils") {
    return {};
  }
  const auto* const found = std::find_if(
      std::begin(kUnsupportedTensors), std::end(kUnsupportedTensors),
      [&](const UnsupportedName& u) { return u.name == global.name; });
  return found == std::end(kUnsupportedTensors) ? std::string_view{}
                                                : found->what;
}

std::optional<StorageClass> StorageClassOf(const Global& global) {
  if (global.module != "torch" && global.module != "torch.storage" &&
      global.module != "torch.cuda") {
    return std::nullopt;
  }
  const auto* const found = std::find_if(
      std::begin(kStorageClasses), std::end(kStorageClasses),
      [&](const NamedStorage& s) { return s.name == global.name; });
  return found == std::end(kStorageClasses) ? std::nullopt
                                            : std::optional(found->storage);
}

std::string_view StorageClassName(DType dtype) {
  const auto* const found =
      std::find_if(std::begin(kStorageClasses), std::end(kStorageClasses),
                   [&](const NamedStorage& s) {
                     return s.storage.dtype == dtype && !s.storage.untyped &&
                            !s.storage.quantized;
                   });
  return found == std::end(kStorageClasses) ? std::string_view{} : found->name;
}

}  // namespace muonstore::torchfile
