// Text encodings that pickles use.
#ifndef MUONSTORE_FORMATS_TORCHFILE_TEXT_CODEC_H_
#define MUONSTORE_FORMATS_TORCHFILE_TEXT_CODEC_H_

#include <optional>
#include <string>
#include <string_view>

namespace muonstore::torchfile {

// Python's "surrogatepass" UTF-8: lone surrogates are fine.
bool IsUtf8(std::string_view text);

// One byte a character; nullopt if a character is beyond U+00FF. Valid UTF-8.
std::optional<std::string> EncodeLatin1(std::string_view utf8);

// The other way: each byte is a character, as UTF-8.
std::string DecodeLatin1(std::string_view bytes);

// The UNICODE opcode's raw-unicode-escape (\uXXXX, \UXXXXXXXX, else latin-1) as
// UTF-8; nullopt if it is malformed.
std::optional<std::string> DecodeRawUnicodeEscape(std::string_view text);

// The STRING opcode's quoted Python 2 literal as bytes; nullopt if malformed.
std::optional<std::string> DecodeStringLiteral(std::string_view text);

// A decimal integer as two's complement little-endian bytes; nullopt if
// malformed. At most kMaxDecimalDigits digits, as CPython, since the work is
// quadratic.
inline constexpr size_t kMaxDecimalDigits = 4300;
std::optional<std::string> DecodeDecimal(std::string_view text);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_TEXT_CODEC_H_
