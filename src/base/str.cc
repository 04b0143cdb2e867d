#include "src/base/str.h"

#include <array>
#include <charconv>

#include "src/base/utf8.h"

namespace muonstore {
namespace {

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
