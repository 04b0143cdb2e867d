#include "python/src/words.h"

#include <algorithm>
#include <cstddef>

namespace muonstore::python {
namespace {

bool IsLetter(char c) { return c >= 'a' && c <= 'z'; }

// The length of the option at the start of `text`: two dashes, then words of
// letters with a dash between them; 0: there is none.
size_t OptionLength(std::string_view text) {
  if (!text.starts_with("--")) return 0;
  size_t end = 2;
  while (end < text.size() && (IsLetter(text[end]) ||
                               (text[end] == '-' && IsLetter(text[end - 1])))) {
    ++end;
  }
  while (text[end - 1] == '-' && end > 2) --end;
  return end > 2 ? end : 0;
}

}  // namespace

std::string InPythonsWords(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const bool is_start =
        result.empty() || result.back() == ' ' || result.back() == '(';
    const size_t length = is_start ? OptionLength(text) : 0;
    if (length == 0) {
      result += text.front();
      text.remove_prefix(1);
      continue;
    }
    std::string name(text.substr(2, length - 2));
    std::ranges::replace(name, '-', '_');
    result += "`" + name + "`";
    text.remove_prefix(length);
  }
  return result;
}

}  // namespace muonstore::python
