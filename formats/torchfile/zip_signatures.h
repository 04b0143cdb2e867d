// What the records of a zip archive begin with.
#ifndef MUONSTORE_FORMATS_TORCHFILE_ZIP_SIGNATURES_H_
#define MUONSTORE_FORMATS_TORCHFILE_ZIP_SIGNATURES_H_

#include <cstdint>

namespace muonstore::torchfile {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kDescriptorSignature = 0x08074b50;
inline constexpr uint32_t kCentralSignature = 0x02014b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocator64Signature = 0x07064b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_FORMATS_TORCHFILE_ZIP_SIGNATURES_H_
