#include "src/tier/anonymous_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "src/base/str.h"
#include "src/os/os_error.h"

namespace muonstore::tier {

AnonymousMemory::AnonymousMemory(const std::string& name, uint64_t size_bytes) {
  if (size_bytes == 0) {
    return;
  }
  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) {
    os::ThrowErrno(errno, StrCat("map ", size_bytes, " bytes for arena ", name),
                   "");
  }
  memory_ = {static_cast<std::byte*>(address), size_bytes};
  AdviseHugePages(memory_);
}

AnonymousMemory::AnonymousMemory(AnonymousMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, {})) {}

AnonymousMemory::~AnonymousMemory() {
  if (!memory_.empty()) {
    ::munmap(memory_.data(), memory_.size());
  }
}

void AdviseHugePages(std::span<std::byte> memory) {
  (void)::madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
}

}  // namespace muonstore::tier
