// What the fuzzer and the tests do with any text that claims to be a manifest.
#ifndef MUONSTORE_TESTS_NATIVE_CHECK_MANIFEST_H_
#define MUONSTORE_TESTS_NATIVE_CHECK_MANIFEST_H_

#include <string>

namespace muonstore::native {

// The text with the digest that it should have.
std::string Sign(const std::string& text);

// Parses the signed text, builds the layout, asks for every fragment, checks
// blocks against an empty table, and writes what was understood, which must
// read back as the same. True where it is sound; an Error is a proper answer;
// anything else ends the program.
bool CheckManifest(const std::string& text);

}  // namespace muonstore::native

#endif  // MUONSTORE_TESTS_NATIVE_CHECK_MANIFEST_H_
