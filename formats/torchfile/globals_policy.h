// What a pickle may call: the allow list, and what is refused.
//
// What: nothing is ever called; the rule says how a call is *kept*. Known
//   calls are interpreted (tensors, OrderedDict, ...), calls of classes of
//   other packages become opaque objects, and calls that only an attack or a
//   program makes (functions, the rest of Python's standard library) are
//   refused. Naming a global without calling it is always allowed.
// Ownership: none. Threads: pure functions. Failures: none; the caller throws.

#ifndef MUONSTORE_FORMATS_TORCHFILE_GLOBALS_POLICY_H_
#define MUONSTORE_FORMATS_TORCHFILE_GLOBALS_POLICY_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/torchfile/value_tree.h"
#include "muonstore/dtype.h"

namespace muonstore::torchfile {

enum class CallRule : uint8_t {
  kOpaque,             // Kept as an object.
  kRefused,            // Error(kUnsupported).
  kUnsupportedTensor,  // Error(kUnsupported), UnsupportedTensor() says what.
  kRebuildTensor,      // Old form without requires_grad.
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildParameterWithState,
  kRebuildFromType,
  kSize,         // torch.Size
  kDict,         // OrderedDict, Counter: items from the argument.
  kDefaultDict,  // The argument is the factory.
  kSet,
  kFrozenSet,
  kBytes,   // bytes() of protocol 2.
  kEncode,  // _codecs.encode(text, "latin1"): bytes of protocol 2.
};

// Whether a rule gives a tensor by itself.
constexpr bool IsRebuild(CallRule rule) {
  return rule >= CallRule::kRebuildTensor &&
         rule <= CallRule::kRebuildParameterWithState;
}

CallRule RuleOfCall(const Global& global);

// "a sparse tensor" for torch._utils._rebuild_sparse_tensor, ...
std::string_view UnsupportedTensor(const Global& global);

// Element type of a storage class; nullopt if the global names none.
struct StorageClass {
  DType dtype = DType::kU8;
  bool untyped = false;
  bool quantized = false;  // No DType.
};
std::optional<StorageClass> StorageClassOf(const Global& global);

// "FloatStorage"; empty for a dtype that torch keeps in untyped storages only.
std::string_view StorageClassName(DType dtype);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_GLOBALS_POLICY_H_
