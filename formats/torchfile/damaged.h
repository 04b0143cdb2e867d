// How values of a file that are not what they must be are refused.
#ifndef MUONSTORE_FORMATS_TORCHFILE_DAMAGED_H_
#define MUONSTORE_FORMATS_TORCHFILE_DAMAGED_H_

#include <string>

namespace muonstore::torchfile {

// Error(kDataLoss). Whoever knows the file and the tensor adds them.
[[noreturn]] void ThrowDamaged(std::string message, std::string expected,
                               std::string found);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_DAMAGED_H_
