// Assertions for suites that run outside of GoogleTest as well.
#ifndef MUONSTORE_TESTS_CONFORMANCE_CHECK_H_
#define MUONSTORE_TESTS_CONFORMANCE_CHECK_H_

#include <cstddef>
#include <functional>
#include <source_location>
#include <string>
#include <string_view>

#include "muonstore/error.h"

namespace muonstore::conformance {

// Throws std::runtime_error with file and line.
void CheckThat(bool condition, std::string_view what,
               std::source_location where = std::source_location::current());

// The text of the Error that `function` must throw, with that code.
std::string CheckThrows(
    ErrorCode code, const std::function<void()>& function,
    std::source_location where = std::source_location::current());

// Returns once `byte` is not `value` any more: how a rank catches itself in the
// middle of an exchange. On purpose it looks at memory that is being written.
void AwaitOverwrite(const std::byte& byte, std::byte value);

}  // namespace muonstore::conformance

#endif  // MUONSTORE_TESTS_CONFORMANCE_CHECK_H_
