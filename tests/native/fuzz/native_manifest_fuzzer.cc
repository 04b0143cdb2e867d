// libFuzzer target of the manifest's reader. Build with clang and
// -DMUONSTORE_BUILD_FUZZERS=ON; run it on a copy of tests/native/corpus.

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/native/check_manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muonstore::native::CheckManifest(
      std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
