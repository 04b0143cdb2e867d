// What a call throws, as a value.
#ifndef MUONSTORE_TESTS_TENSOR_ERROR_OF_H_
#define MUONSTORE_TESTS_TENSOR_ERROR_OF_H_

#include <optional>
#include <string>

#include "muonstore/error.h"

namespace muonstore {

// The muonstore::Error of the call, or nullopt where it threw none.
template <typename Call>
std::optional<Error> ErrorOf(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

template <typename Call>
std::optional<ErrorCode> CodeOf(const Call& call) {
  const std::optional<Error> error = ErrorOf(call);
  return error.has_value() ? std::optional(error->code()) : std::nullopt;
}

// The sentence of the error; empty where the call threw none.
template <typename Call>
std::string MessageOf(const Call& call) {
  const std::optional<Error> error = ErrorOf(call);
  return error.has_value() ? error->message() : std::string();
}

// All of what the error says, its place included.
template <typename Call>
std::string TextOf(const Call& call) {
  const std::optional<Error> error = ErrorOf(call);
  return error.has_value() ? error->what() : std::string();
}

}  // namespace muonstore

#endif  // MUONSTORE_TESTS_TENSOR_ERROR_OF_H_
