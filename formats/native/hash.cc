#include "formats/native/hash.h"

#include <xxhash.h>

#include <new>

namespace muonstore::native {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr size_t kHexDigits = 16;

}  // namespace

uint64_t Hash64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

struct Hasher64::State {
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

Hasher64::Hasher64() : state_(std::make_unique<State>()) {
  if (state_->xxh == nullptr) {
    throw std::bad_alloc();
  }
  XXH3_64bits_reset(state_->xxh.get());
}

Hasher64::~Hasher64() = default;

void Hasher64::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh.get(), bytes.data(), bytes.size());
}

uint64_t Hasher64::Digest() const {
  return XXH3_64bits_digest(state_->xxh.get());
}

std::string ToHex(uint64_t value) {
  std::string text(kHexDigits, '0');
  for (size_t i = kHexDigits; i-- > 0; value >>= 4) {
    text[i] = kDigits[value & 15];
  }
  return text;
}

std::optional<uint64_t> ParseHex(std::string_view text) {
  if (text.size() != kHexDigits) {
    return std::nullopt;
  }
  uint64_t value = 0;
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) {
      return std::nullopt;
    }
    value = value << 4 | digit;
  }
  return value;
}

}  // namespace muonstore::native
