// The tools start in milliseconds and run anywhere: no LibTorch, no CUDA.
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/process.h"

namespace muonstore::testutil {
namespace {

TEST(Dependencies, NeitherTorchNorCuda) {
  const ProcessResult result = RunProcess({"ldd", MUONSTORE_CKPT_INSPECT});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::istringstream lines(result.out);
  int num_libraries = 0;
  for (std::string line; std::getline(lines, line);) {
    ++num_libraries;
    // Without the address that it is loaded at: 0x7f6d878c1000 holds "c10".
    const std::string library = line.substr(0, line.rfind(" (0x"));
    for (const char* word :
         {"torch", "c10", "cuda", "cublas", "nvidia", "hdf5", "python"}) {
      EXPECT_EQ(library.find(word), std::string::npos) << line;
    }
  }
  EXPECT_GT(num_libraries, 0);
}

}  // namespace
}  // namespace muonstore::testutil
