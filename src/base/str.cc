#include "src/base/str.h"

#include <array>
#include <charconv>

namespace muonstore {
namespace {

// Length of the valid UTF-8 sequence at the start of `s`; 0 if it is broken.
size_t Utf8Length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) {
    return 1;
  }
  size_t length = 0;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
  }
  if (length == 0 || s.size() < length) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  const bool overlong =
      (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) >= 0xA0;
  const bool beyond = lead == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

void AppendEscaped(std::string& out, unsigned char c) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  out += "\\x";
  out += kHex[c >> 4];
  out += kHex[c & 15];
}

}  // namespace

std::string FormatNumber(double value) {
  std::array<char, 32> buffer{};
  const auto result =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return std::string(buffer.data(), result.ptr);
}

std::string Printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text[0]);
    const size_t length = Utf8Length(text);
    // U+0080..U+009F are control characters, too.
    const bool c1 =
        length == 2 && c == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (length == 0 || c < 0x20 || c == 0x7F) {
      AppendEscaped(out, c);
      text.remove_prefix(1);
    } else if (c1) {
      AppendEscaped(out, c);
      AppendEscaped(out, static_cast<unsigned char>(text[1]));
      text.remove_prefix(2);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string JoinNames(std::span<const std::string> names, size_t limit) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i == limit) {
      return out + " and " + std::to_string(names.size() - limit) + " more";
    }
    out += (i == 0 ? "" : ", ") + names[i];
  }
  return out;
}

std::string FormatRanges(std::span<const int32_t> values) {
  std::string out;
  for (size_t i = 0; i < values.size();) {
    size_t last = i;
    while (last + 1 < values.size() && values[last + 1] == values[last] + 1) {
      ++last;
    }
    out += (out.empty() ? "" : ",") + std::to_string(values[i]);
    if (last > i) {
      out += "-" + std::to_string(values[last]);
    }
    i = last + 1;
  }
  return out;
}

}  // namespace muonstore
