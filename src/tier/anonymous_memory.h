// Owner of anonymous memory of this process: zero at first, huge-page friendly.
//
// Failures: Error(kResourceExhausted) where the system gives none.
#ifndef MUONSTORE_SRC_TIER_ANONYMOUS_MEMORY_H_
#define MUONSTORE_SRC_TIER_ANONYMOUS_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace muonstore::tier {

class AnonymousMemory {
 public:
  AnonymousMemory(const std::string& name, uint64_t size_bytes);
  AnonymousMemory(AnonymousMemory&& other) noexcept;
  AnonymousMemory& operator=(AnonymousMemory&& other) = delete;
  AnonymousMemory(const AnonymousMemory&) = delete;
  AnonymousMemory& operator=(const AnonymousMemory&) = delete;
  ~AnonymousMemory();

  std::span<std::byte> memory() const { return memory_; }

 private:
  std::span<std::byte> memory_;
};

// Asks for huge pages; the answer does not matter.
void AdviseHugePages(std::span<std::byte> memory);

}  // namespace muonstore::tier

#endif  // MUONSTORE_SRC_TIER_ANONYMOUS_MEMORY_H_
