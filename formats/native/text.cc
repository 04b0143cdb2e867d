#include "formats/native/text.h"

#include <algorithm>

#include "src/base/utf8.h"

namespace muonstore::native {
namespace {

constexpr std::string_view kHex = "0123456789ABCDEF";

void AppendEscaped(std::string& out, char byte) {
  const auto value = static_cast<unsigned char>(byte);
  out += '%';
  out += kHex[value >> 4];
  out += kHex[value & 15];
}

// `must_escape` is asked about single bytes below 0x80.
template <typename Predicate>
std::string Escape(std::string_view bytes, const Predicate& must_escape) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const size_t length = Utf8Length(bytes);
    if (length == 0 || (length == 1 && must_escape(bytes[0]))) {
      AppendEscaped(out, bytes[0]);
      bytes.remove_prefix(1);
    } else {
      out += bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace

std::string EscapeText(std::string_view bytes) {
  return Escape(bytes, [](char c) { return c == '%'; });
}

std::optional<std::string> UnescapeText(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const size_t high =
        i + 1 < text.size() ? kHex.find(text[i + 1]) : kHex.npos;
    const size_t low = i + 2 < text.size() ? kHex.find(text[i + 2]) : kHex.npos;
    if (high == kHex.npos || low == kHex.npos) {
      return std::nullopt;
    }
    out += static_cast<char>(high << 4 | low);
    i += 2;
  }
  return out;
}

std::string EscapePathPart(std::string_view bytes) {
  if (bytes.empty()) {
    return "%";
  }
  const bool dots =
      std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == '.'; });
  return Escape(bytes, [dots](char c) {
    const auto value = static_cast<unsigned char>(c);
    return c == '%' || c == '/' || value < 0x20 || value == 0x7F || dots;
  });
}

bool IsPlainText(std::string_view bytes) {
  bool plain = !bytes.empty();
  while (plain && !bytes.empty()) {
    const size_t length = Utf8Length(bytes);
    plain = length > 0 && bytes[0] != '\0';
    bytes.remove_prefix(length);
  }
  return plain;
}

}  // namespace muonstore::native
