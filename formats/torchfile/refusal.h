// The one error for calls that no checkpoint needs.
#ifndef MUONSTORE_FORMATS_TORCHFILE_REFUSAL_H_
#define MUONSTORE_FORMATS_TORCHFILE_REFUSAL_H_

#include "formats/torchfile/value_tree.h"
#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::torchfile {

[[noreturn]] inline void ThrowRefused(std::string_view what) {
  throw Error(ErrorCode::kUnsupported,
              StrCat("refused: the pickle ", what,
                     "; muonstore never runs code from a file. Do not load "
                     "this file elsewhere unless you trust its source"));
}

[[noreturn]] inline void ThrowRefused(const Global& global) {
  ThrowRefused(StrCat("calls ", Printable(global.ToString())));
}

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_REFUSAL_H_
