#include <dlfcn.h>

#include <gtest/gtest.h>

#include "src/tier/host_tiers.h"
#include "tests/tier/memory_map.h"

namespace muonstore::tier {
namespace {

constexpr uint64_t kPage = 4096;

size_t RegisteredBytes() {
  void* library = ::dlopen(FAKE_CUDART_PATH, RTLD_NOW);
  using Function = size_t (*)();
  const auto function =
      reinterpret_cast<Function>(::dlsym(library, "FakeCudartRegisteredBytes"));
  return function();
}

ArenaOptions Pages(uint64_t num_pages, Pinning pinning) {
  return {
      .name = "master", .block_bytes = {num_pages * kPage}, .pinning = pinning};
}

using Factory = std::unique_ptr<Tier> (*)(const HostTierSeams&);

class CudaHostTest : public testing::TestWithParam<Factory> {
 protected:
  std::unique_ptr<Tier> Make(std::vector<std::string> libraries) {
    return GetParam()({.cuda_libraries = std::move(libraries)});
  }
};

INSTANTIATE_TEST_SUITE_P(Tiers, CudaHostTest,
                         testing::Values(&MakePinnedHostTier,
                                         &MakeSharedHostTier));

TEST_P(CudaHostTest, RegistersWithTheRuntimeWhereADeviceIsThere) {
  const auto tier = Make({"libno-such-thing.so", FAKE_CUDART_PATH});
  {
    const auto arena = tier->CreateArena(Pages(5, Pinning::kRequired));
    EXPECT_EQ(arena->pin_report().method, "cuda");
    EXPECT_EQ(arena->pin_report().pinned_bytes, 5 * kPage);
    EXPECT_EQ(RegisteredBytes(), 5 * kPage);
  }
  EXPECT_EQ(RegisteredBytes(), 0U);
}

TEST_P(CudaHostTest, OffRegistersNothing) {
  const auto tier = Make({FAKE_CUDART_PATH});
  const auto first = tier->CreateArena(Pages(5, Pinning::kOff));
  EXPECT_EQ(RegisteredBytes(), 0U);
  // And does not decide for the arenas that follow.
  const auto second = tier->CreateArena(Pages(3, Pinning::kTry));
  EXPECT_EQ(RegisteredBytes(), 3 * kPage);
}

TEST_P(CudaHostTest, LocksByTheOsWhereTheRuntimeRefuses) {
  const auto tier = Make({FAKE_CUDART_PATH});
  const auto arena = tier->CreateArena(Pages(7, Pinning::kTry));
  EXPECT_EQ(arena->pin_report().method, "mlock");
  if (MlockWorks()) {
    EXPECT_EQ(LookAt(arena->all_memory()).locked_bytes, 7 * kPage);
  }
}

TEST_P(CudaHostTest, LocksByTheOsWhereThereIsNoDevice) {
  const auto tier = Make({FAKE_CUDART_NO_DEVICE_PATH});
  const auto arena = tier->CreateArena(Pages(5, Pinning::kTry));
  EXPECT_EQ(arena->pin_report().method, "mlock");
  EXPECT_EQ(RegisteredBytes(), 0U);
}

}  // namespace
}  // namespace muonstore::tier
