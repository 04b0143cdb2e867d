// The kernels compile: by the real NVRTC, which needs no GPU, and by nvcc where
// the build had one.
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "muonstore/error.h"
#include "src/cuda/plugin/kernel_module.h"

namespace muonstore::cuda {
namespace {

using testing::HasSubstr;

constexpr const char* kKernels[] = {"SumSquares", "SumParts", "Normalize",
                                    "Round",      "Widen",    "AddToDiagonal"};

void ExpectKernels(const std::string& ptx) {
  EXPECT_THAT(ptx, HasSubstr(".target sm_75"));
  for (const char* name : kKernels) {
    EXPECT_THAT(ptx, HasSubstr(std::string(".visible .entry ") + name + "("));
  }
}

TEST(Kernels, AreTheSourcesText) {
  std::ifstream file(KERNEL_SOURCE_PATH);
  const std::string text((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(KernelSource(), text);
}

TEST(Kernels, CompileByNvrtc) {
  Nvrtc nvrtc;
  try {
    nvrtc = Nvrtc::Load("");
  } catch (const Error& error) {
    GTEST_SKIP() << error.message();
  }
  ExpectKernels(CompileKernels(nvrtc));
}

TEST(Kernels, WereCompiledByNvcc) {
  if (BuiltKernels().empty()) GTEST_SKIP() << "the build found no nvcc";
  ExpectKernels(std::string(BuiltKernels()));
}

}  // namespace
}  // namespace muonstore::cuda
