#include "formats/torchfile/text_codec.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "src/base/utf8.h"

namespace muonstore::torchfile {
namespace {

void AppendUtf8(std::string& out, uint32_t code) {
  const auto tail = [&](int shift) {
    out += static_cast<char>(0x80 | ((code >> shift) & 0x3F));
  };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

// Exactly `num_digits` hexadecimal digits at the start of `text`.
std::optional<uint32_t> ParseHex(std::string_view text, size_t num_digits) {
  uint32_t value = 0;
  if (text.size() < num_digits) {
    return std::nullopt;
  }
  const char* const end = text.data() + num_digits;
  const auto result = std::from_chars(text.data(), end, value, 16);
  return result.ptr == end && result.ec == std::errc() ? std::optional(value)
                                                       : std::nullopt;
}

std::optional<char> SimpleEscape(char c) {
  constexpr std::string_view kNames = "\\'\"abfnrtv";
  constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
  const size_t found = kNames.find(c);
  return found == std::string_view::npos ? std::nullopt
                                         : std::optional(kValues[found]);
}

// Decodes the escape that follows a backslash and drops it from `text`.
bool DecodeEscape(std::string_view& text, std::string& out) {
  if (text.empty()) {
    return false;
  }
  const char c = text[0];
  if (const auto simple = SimpleEscape(c)) {
    out += *simple;
    text.remove_prefix(1);
    return true;
  }
  if (c == 'x') {
    const auto value = ParseHex(text.substr(1), 2);
    out += static_cast<char>(value.value_or(0));
    text.remove_prefix(value.has_value() ? 3 : 1);
    return value.has_value();
  }
  if (c < '0' || c > '7') {
    // Python keeps unknown escapes as they are.
    out += '\\';
    return true;
  }
  uint32_t value = 0;
  size_t digits = 0;
  while (digits < 3 && digits < text.size() && text[digits] >= '0' &&
         text[digits] <= '7') {
    value = value * 8 + static_cast<uint32_t>(text[digits++] - '0');
  }
  out += static_cast<char>(value & 0xFF);
  text.remove_prefix(digits);
  return true;
}

void Negate(std::string& bytes) {
  unsigned carry = 1;
  for (char& byte : bytes) {
    const unsigned sum =
        (static_cast<unsigned>(static_cast<unsigned char>(byte)) ^ 0xFFu) +
        carry;
    byte = static_cast<char>(sum & 0xFFu);
    carry = sum >> 8;
  }
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8Length(text, Surrogates::kPass);
    if (length == 0) {
      return false;
    }
    text.remove_prefix(length);
  }
  return true;
}

std::optional<std::string> EncodeLatin1(std::string_view utf8) {
  std::string bytes;
  bytes.reserve(utf8.size());
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
    } else if (lead == 0xC2 || lead == 0xC3) {
      const auto tail = static_cast<unsigned char>(utf8[++i]);
      bytes += static_cast<char>(((lead & 3) << 6) | (tail & 0x3F));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

std::string DecodeLatin1(std::string_view bytes) {
  std::string utf8;
  utf8.reserve(bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      utf8 += c;
    } else {
      utf8 += static_cast<char>(0xC0 | (byte >> 6));
      utf8 += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return utf8;
}

std::optional<std::string> DecodeRawUnicodeEscape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const bool is_escape =
        c == '\\' && text.size() > 1 && (text[1] == 'u' || text[1] == 'U');
    if (!is_escape) {
      AppendUtf8(out, c);
      text.remove_prefix(1);
      continue;
    }
    const size_t num_digits = text[1] == 'u' ? 4 : 8;
    const auto code = ParseHex(text.substr(2), num_digits);
    if (!code.has_value() || *code > 0x10FFFF) {
      return std::nullopt;
    }
    AppendUtf8(out, *code);
    text.remove_prefix(2 + num_digits);
  }
  return out;
}

std::optional<std::string> DecodeStringLiteral(std::string_view text) {
  const bool quoted = text.size() >= 2 && text.front() == text.back() &&
                      (text.front() == '\'' || text.front() == '"');
  if (!quoted) {
    return std::nullopt;
  }
  text = text.substr(1, text.size() - 2);
  std::string out;
  while (!text.empty()) {
    const char c = text[0];
    text.remove_prefix(1);
    if (c != '\\') {
      out += c;
    } else if (!DecodeEscape(text, out)) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::string> DecodeDecimal(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) {
    text.remove_prefix(1);
  }
  const bool all_digits = std::all_of(
      text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (text.empty() || text.size() > kMaxDecimalDigits || !all_digits) {
    return std::nullopt;
  }
  // A digit needs less than half a byte; one more byte holds the sign.
  std::string bytes(text.size() / 2 + 2, '\0');
  for (const char digit : text) {
    auto carry = static_cast<unsigned>(digit - '0');
    for (char& byte : bytes) {
      const unsigned value = static_cast<unsigned char>(byte) * 10u + carry;
      byte = static_cast<char>(value & 0xFFu);
      carry = value >> 8;
    }
  }
  if (negative) {
    Negate(bytes);
  }
  return bytes;
}

}  // namespace muonstore::torchfile
