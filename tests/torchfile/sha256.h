// SHA-256 as FIPS 180-4 writes it down; slow and plain, for tests.
#ifndef MUONSTORE_TESTS_TORCHFILE_SHA256_H_
#define MUONSTORE_TESTS_TORCHFILE_SHA256_H_

#include <string>
#include <string_view>

namespace muonstore::torchfile {

// 64 lower-case hexadecimal digits.
std::string Sha256Hex(std::string_view data);

// Lower-case hexadecimal digits of all bytes.
std::string Hex(std::string_view data);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_SHA256_H_
