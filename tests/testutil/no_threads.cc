#include "tests/testutil/no_threads.h"

#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <system_error>
#include <thread>

namespace muonstore::testutil {
namespace {

rlim_t AddressSpaceBytes() {
  constexpr rlim_t kPageBytes = 4096;
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * kPageBytes;
}

}  // namespace

void RefuseThreads() {
  // A limit on processes would not bind root; a thread without a stack cannot
  // be, either.
  constexpr rlim_t kSpareBytes = rlim_t{4} << 20;
  const rlim_t bytes = AddressSpaceBytes() + kSpareBytes;
  const struct rlimit limit { bytes, bytes };
  setrlimit(RLIMIT_AS, &limit);
  try {
    std::thread([] {}).join();
    std::_Exit(99);
  } catch (const std::system_error&) {
    return;
  }
}

}  // namespace muonstore::testutil
