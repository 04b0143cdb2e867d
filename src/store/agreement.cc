#include "src/store/agreement.h"

#include <array>
#include <cstring>
#include <new>
#include <stdexcept>

#include "src/base/str.h"

namespace muonstore {

void Digest::AddBytes(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < size; ++i) {
    hash_ = (hash_ ^ bytes[i]) * 1099511628211U;
  }
}

Digest& Digest::Add(std::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  AddBytes(text.data(), text.size());
  return *this;
}

Digest& Digest::Add(int64_t value) {
  AddBytes(&value, sizeof(value));
  return *this;
}

Digest& Digest::Add(double value) {
  AddBytes(&value, sizeof(value));
  return *this;
}

std::optional<Error> Caught(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kResourceExhausted, "out of memory");
  } catch (const std::length_error&) {
    return Error(ErrorCode::kResourceExhausted, "out of memory");
  }
  return std::nullopt;
}

void RequireAgreement(Communicator& communicator, std::string_view what,
                      const std::optional<Error>& error, int64_t digest) {
  // The bitwise complement turns a minimum into a maximum.
  std::array<int64_t, 3> least = {
      error.has_value() ? communicator.rank() : communicator.size(), digest,
      ~digest};
  communicator.AllReduce(least, ReduceOp::kMin);
  if (error.has_value()) throw *error;
  if (least[0] < communicator.size()) {
    throw Error(ErrorCode::kUnavailable,
                StrCat("rank ", least[0], " failed at ", what,
                       "; its own error says why"));
  }
  if (least[1] != ~least[2]) {
    throw Error(ErrorCode::kInvalidArgument,
                StrCat("the ranks do not agree on ", what,
                       ": every rank must give the same parameters, "
                       "partitioning and options"));
  }
}

}  // namespace muonstore
