// Values that Python gives by name.
//
// What: the value of a name in a table, and what is said where it has none.
// Ownership, threads: pure.
// Failures: Error(kInvalidArgument) with the name that was found.

#ifndef MUONSTORE_PYTHON_SRC_NAMED_H_
#define MUONSTORE_PYTHON_SRC_NAMED_H_

#include <map>
#include <optional>
#include <string>

#include "muonstore/error.h"

namespace muonstore::python {

template <typename Value>
Value RequireKnown(const std::optional<Value>& value, const char* what,
                   const std::string& found) {
  if (value) return *value;
  throw Error(ErrorCode::kInvalidArgument, what, {.found = found});
}

template <typename Value>
Value Named(const std::map<std::string, Value>& values, const char* what,
            const std::string& name) {
  const auto found = values.find(name);
  return RequireKnown(
      found == values.end() ? std::nullopt : std::optional(found->second), what,
      name);
}

}  // namespace muonstore::python

#endif  // MUONSTORE_PYTHON_SRC_NAMED_H_
