#include "src/tier/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/os/os_error.h"

namespace muonstore::tier {
namespace {

namespace bip = boost::interprocess;

// What mapped_region asks of a memory-mappable object.
class Mappable {
 public:
  explicit Mappable(int fd) : fd_(fd) {}
  bip::mapping_handle_t get_mapping_handle() const {
    return {.handle = fd_, .is_xsi = false};
  }

 private:
  int fd_;
};

// Nobody can resize it (a peer would die by SIGBUS), nor, where the kernel
// knows how (5.1), map it writable any more.
void Seal(int fd, Access peers) {
  constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
  constexpr int kFutureWriteSeal = 0x0010;
  if (peers == Access::kRead &&
      ::fcntl(fd, F_ADD_SEALS, kSizeSeals | kFutureWriteSeal) == 0) {
    return;
  }
  if (::fcntl(fd, F_ADD_SEALS, kSizeSeals) != 0) {
    os::ThrowErrno(errno, "seal shared memory", "");
  }
}

}  // namespace

SharedMemory::SharedMemory() = default;
SharedMemory::SharedMemory(SharedMemory&& other) noexcept = default;
SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept = default;
SharedMemory::~SharedMemory() = default;

SharedMemory SharedMemory::Create(const std::string& name, uint64_t size_bytes,
                                  Access peers) {
  SharedMemory shared;
  shared.fd_ = os::FileDescriptor(::memfd_create(
      name.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!shared.fd_.valid() ||
      ::ftruncate(shared.fd_.get(), static_cast<off_t>(size_bytes)) != 0) {
    os::ThrowErrno(
        errno,
        StrCat("create ", size_bytes, " bytes of shared memory for ", name),
        "");
  }
  shared.Map(shared.fd_.get(), size_bytes, Access::kWrite);
  Seal(shared.fd_.get(), peers);
  return shared;
}

// The parameter is the owner that closes it.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
SharedMemory SharedMemory::Adopt(os::FileDescriptor fd, uint64_t size_bytes,
                                 Access access) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    os::ThrowErrno(errno, "look at a peer's shared memory", "");
  }
  if (static_cast<uint64_t>(status.st_size) != size_bytes) {
    throw Error(ErrorCode::kDataLoss, "a peer's shared memory has another size",
                {.expected = StrCat(size_bytes, " bytes"),
                 .found = StrCat(status.st_size, " bytes")});
  }
  SharedMemory shared;
  shared.Map(fd.get(), size_bytes, access);
  return shared;
}

void SharedMemory::Map(int fd, uint64_t size_bytes, Access access) {
  if (size_bytes == 0) {
    return;
  }
  try {
    region_ = std::make_unique<bip::mapped_region>(
        Mappable(fd),
        access == Access::kWrite ? bip::read_write : bip::read_only, 0,
        size_bytes);
  } catch (const bip::interprocess_exception& error) {
    throw Error(ErrorCode::kResourceExhausted,
                StrCat("cannot map ", size_bytes,
                       " bytes of shared memory: ", error.what()));
  }
}

std::span<std::byte> SharedMemory::memory() const {
  return region_ == nullptr
             ? std::span<std::byte>()
             : std::span<std::byte>(
                   static_cast<std::byte*>(region_->get_address()),
                   region_->get_size());
}

}  // namespace muonstore::tier
