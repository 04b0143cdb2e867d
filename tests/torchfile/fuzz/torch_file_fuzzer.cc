// libFuzzer target of the torch.save reader. Build with clang and
// -DMUONSTORE_BUILD_FUZZERS=ON; run it on a copy of tests/data/torchfiles.

#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/torchfile/check_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  muonstore::torchfile::CheckFile(bytes);
  muonstore::torchfile::CheckPickle(bytes);
  return 0;
}
