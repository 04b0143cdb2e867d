#include "src/os/os_error.h"

#include <cerrno>
#include <system_error>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::os {
namespace {

ErrorCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::kNotFound;
    case EEXIST:
    case ENAMETOOLONG:
      return ErrorCode::kInvalidArgument;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EFBIG:
      return ErrorCode::kResourceExhausted;
    default:
      return ErrorCode::kUnavailable;
  }
}

}  // namespace

void ThrowErrno(int error, std::string_view action, const std::string& path) {
  throw Error(
      CodeOf(error),
      StrCat("cannot ", action, ": ", std::generic_category().message(error)),
      {.file = path});
}

}  // namespace muonstore::os
