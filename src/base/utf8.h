// Which bytes are valid UTF-8.
#ifndef MUONSTORE_SRC_BASE_UTF8_H_
#define MUONSTORE_SRC_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace muonstore {

// Python's "surrogatepass" lets the encoding of a lone surrogate pass.
enum class Surrogates { kBroken, kPass };

// Bytes of the valid UTF-8 sequence at the start of `text`, which is not empty;
// 0 if it is broken.
size_t Utf8Length(std::string_view text,
                  Surrogates surrogates = Surrogates::kBroken);

}  // namespace muonstore

#endif  // MUONSTORE_SRC_BASE_UTF8_H_
