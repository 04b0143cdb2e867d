// Names are data: any bytes, in places that do not take any bytes.
#ifndef MUONSTORE_FORMATS_NATIVE_TEXT_H_
#define MUONSTORE_FORMATS_NATIVE_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

namespace muonstore::native {

// For JSON: UTF-8 stays, "%" and every byte that is not UTF-8 become %XX.
std::string EscapeText(std::string_view bytes);
// The bytes again; nullopt where `text` is not what EscapeText gives.
std::optional<std::string> UnescapeText(std::string_view text);

// For one part of an HDF5 path: as EscapeText, and "/", control characters and
// the dots of a part of dots alone become %XX; nothing becomes "%". Different
// names stay different.
std::string EscapePathPart(std::string_view bytes);

// Valid UTF-8 without NUL and not empty: can be an HDF5 string.
bool IsPlainText(std::string_view bytes);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_TEXT_H_
