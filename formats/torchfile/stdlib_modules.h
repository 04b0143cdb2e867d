// Names of Python's standard library.
#ifndef MUONSTORE_FORMATS_TORCHFILE_STDLIB_MODULES_H_
#define MUONSTORE_FORMATS_TORCHFILE_STDLIB_MODULES_H_

#include <string_view>

namespace muonstore::torchfile {

// Top-level modules of Python 3.x, those of 2.7 that no other package is likely
// to be named like, and packages whose only role in a pickle is to run code
// (cloudpickle, dill, ...).
bool IsCodeModule(std::string_view top_level_name);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_STDLIB_MODULES_H_
