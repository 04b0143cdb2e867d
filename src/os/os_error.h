// Translates errno into the one error type.
#ifndef MUONSTORE_SRC_OS_OS_ERROR_H_
#define MUONSTORE_SRC_OS_OS_ERROR_H_

#include <string>
#include <string_view>

namespace muonstore::os {

// Throws Error for a failed system call: "cannot <action>: No such file or
// directory", with the path as its place.
[[noreturn]] void ThrowErrno(int error, std::string_view action,
                             const std::string& path);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_OS_ERROR_H_
