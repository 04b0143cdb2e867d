// The one way in which ranks decide together that a call may go on.
//
// What: every rank brings its own error, if it has one, and a digest of what it
//   is about to do. Either all ranks go on, or all throw: a rank its own error,
//   the others one that names the first rank that failed.
// Threads: collective.

#ifndef MUONSTORE_SRC_STORE_AGREEMENT_H_
#define MUONSTORE_SRC_STORE_AGREEMENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "muonstore/communicator.h"
#include "muonstore/error.h"

namespace muonstore {

// FNV-1a over values that must be the same on all ranks.
class Digest {
 public:
  Digest& Add(std::string_view text);
  Digest& Add(int64_t value);
  Digest& Add(double value);
  int64_t value() const { return static_cast<int64_t>(hash_); }

 private:
  void AddBytes(const void* data, size_t size);

  uint64_t hash_ = 14695981039346656037U;
};

// The Error that `run` throws, or nothing; memory that there is not becomes
// Error(kResourceExhausted).
std::optional<Error> Caught(const std::function<void()>& run);

// `what` names the call in messages: "the step". Error(kInvalidArgument) on all
// ranks where digests differ.
void RequireAgreement(Communicator& communicator, std::string_view what,
                      const std::optional<Error>& error, int64_t digest);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_STORE_AGREEMENT_H_
