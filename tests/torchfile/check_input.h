// What the fuzzer and the corpus tests do with arbitrary bytes.
#ifndef MUONSTORE_TESTS_TORCHFILE_CHECK_INPUT_H_
#define MUONSTORE_TESTS_TORCHFILE_CHECK_INPUT_H_

#include <string>

#include "formats/torchfile/torch_file.h"

namespace muonstore::torchfile {

// Opens `bytes` as a file and uses all that is in it: descriptions, paths,
// elements, verification. An Error of a kind that bad bytes may give is fine;
// anything else leaves this function as an exception. True if it opened.
bool CheckFile(const std::string& bytes);

// The same for `bytes` as the pickle of a sound archive with two storages, so
// that no checksum stands before the stack machine.
bool CheckPickle(const std::string& bytes);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_CHECK_INPUT_H_
