// XXH3-64, the checksum of everything in a native checkpoint.
#ifndef MUONSTORE_FORMATS_NATIVE_HASH_H_
#define MUONSTORE_FORMATS_NATIVE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muonstore::native {

uint64_t Hash64(std::span<const std::byte> bytes);

// The same, piece by piece.
class Hasher64 {
 public:
  Hasher64();
  ~Hasher64();
  Hasher64(const Hasher64&) = delete;
  Hasher64& operator=(const Hasher64&) = delete;

  void Update(std::span<const std::byte> bytes);
  // Of all bytes so far.
  uint64_t Digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 16 lower-case hexadecimal digits, and back.
std::string ToHex(uint64_t value);
std::optional<uint64_t> ParseHex(std::string_view text);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_HASH_H_
