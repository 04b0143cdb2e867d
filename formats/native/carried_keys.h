// Keys of the carried files. Files hold them: do not rename.
#ifndef MUONSTORE_FORMATS_NATIVE_CARRIED_KEYS_H_
#define MUONSTORE_FORMATS_NATIVE_CARRIED_KEYS_H_

#include <string_view>

namespace muonstore::native {

inline constexpr std::string_view kModelStates = "model_states";
inline constexpr std::string_view kOptimStates = "optim_states";

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_CARRIED_KEYS_H_
