#include "tests/conformance/check.h"

#include <stdexcept>

#include "src/base/str.h"

namespace muonstore::conformance {

void CheckThat(bool condition, std::string_view what,
               std::source_location where) {
  if (!condition) {
    throw std::runtime_error(StrCat(std::string_view(where.file_name()), ":",
                                    where.line(), ": ", what));
  }
}

std::string CheckThrows(ErrorCode code, const std::function<void()>& function,
                        std::source_location where) {
  try {
    function();
  } catch (const Error& error) {
    CheckThat(error.code() == code,
              StrCat("expected ", ErrorCodeName(code), ", got ",
                     ErrorCodeName(error.code()), ": ",
                     std::string_view(error.what())),
              where);
    return error.what();
  }
  CheckThat(false, "no error was thrown", where);
  return {};
}

// ThreadSanitizer would be right.
[[gnu::no_sanitize_thread, gnu::noinline]] void AwaitOverwrite(
    const std::byte& byte, std::byte value) {
  const volatile std::byte& watched = byte;
  while (watched == value) {
  }
}

}  // namespace muonstore::conformance
