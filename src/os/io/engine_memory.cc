// Memory that an engine's ring knows in advance.
#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "src/base/str.h"
#include "src/os/io/engine.h"

namespace muonstore::os {
namespace {

// Less is not worth a place in the kernel's table.
constexpr size_t kMinBufferBytes = size_t{64} << 10;
// The kernel takes no larger ones.
constexpr size_t kMaxBufferBytes = size_t{1} << 30;

class RegisteredMemory final : public IoMemory {
 public:
  RegisteredMemory(std::shared_ptr<Engine> engine, std::vector<int> buffers,
                   IoMemoryReport report)
      : engine_(std::move(engine)),
        buffers_(std::move(buffers)),
        report_(std::move(report)) {}
  ~RegisteredMemory() override { engine_->Unregister(buffers_); }

  const IoMemoryReport& report() const override { return report_; }

 private:
  std::shared_ptr<Engine> engine_;
  std::vector<int> buffers_;
  IoMemoryReport report_;
};

std::string Reason(int error) {
  if (error == ENOSYS) return "the kernel registers no memory of this queue";
  if (error == ENOSPC) return "the queue's table of buffers is full";
  return StrCat("the kernel refuses more (",
                std::generic_category().message(error),
                "); RLIMIT_MEMLOCK limits it");
}

}  // namespace

int Engine::BufferOf(const RingEntry& entry) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Buffer& buffer = buffers_[i];
    if (entry.data >= buffer.begin &&
        entry.data + entry.size_bytes <= buffer.begin + buffer.size_bytes) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int Engine::RegisterOne(std::span<std::byte> memory, int* error) {
  *error = buffers_.empty() ? ENOSYS : ENOSPC;
  const auto free =
      std::find_if(buffers_.begin(), buffers_.end(),
                   [](const Buffer& buffer) { return buffer.size_bytes == 0; });
  if (free == buffers_.end()) return -1;
  const auto index = static_cast<int>(free - buffers_.begin());
  *error = memory.size() > options_.max_registered_bytes - registered_bytes_
               ? ENOMEM
               : ring_->RegisterBuffer(index, memory);
  if (*error != 0) return -1;
  *free = {.begin = memory.data(), .size_bytes = memory.size()};
  registered_bytes_ += memory.size();
  return index;
}

std::unique_ptr<IoMemory> Engine::Register(std::span<std::byte> memory) {
  IoMemoryReport report{.total_bytes = memory.size()};
  std::vector<int> buffers;
  size_t size = std::min(memory.size(), kMaxBufferBytes);
  const std::lock_guard lock(mutex_);
  while (report.registered_bytes < memory.size()) {
    const auto rest = memory.subspan(report.registered_bytes);
    const auto part = rest.first(std::min(size, rest.size()));
    int error = 0;
    const int buffer = RegisterOne(part, &error);
    if (buffer >= 0) {
      buffers.push_back(buffer);
      report.registered_bytes += part.size();
      continue;
    }
    size = size / 2 / kIoBlockBytes * kIoBlockBytes;
    const bool is_limit = error == ENOMEM || error == EPERM;
    if (!is_limit || size < kMinBufferBytes) {
      report.shortfall = Reason(error);
      break;
    }
  }
  return std::make_unique<RegisteredMemory>(
      shared_from_this(), std::move(buffers), std::move(report));
}

void Engine::Unregister(std::span<const int> buffers) {
  const std::lock_guard lock(mutex_);
  for (const int index : buffers) {
    Buffer& buffer = buffers_[static_cast<size_t>(index)];
    (void)ring_->RegisterBuffer(index, {});
    registered_bytes_ -= buffer.size_bytes;
    buffer = {};
  }
}

}  // namespace muonstore::os
