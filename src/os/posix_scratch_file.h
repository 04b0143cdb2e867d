// A scratch file of the operating system: O_TMPFILE, or, where the file system
// has none, a file that loses its name as soon as it is there.
#ifndef MUONSTORE_SRC_OS_POSIX_SCRATCH_FILE_H_
#define MUONSTORE_SRC_OS_POSIX_SCRATCH_FILE_H_

#include <memory>
#include <string>

#include "muonstore/file_system.h"
#include "src/os/posix_io.h"

namespace muonstore::os {

class PosixScratchFile final : public ScratchFile {
 public:
  PosixScratchFile(const std::string& directory, uint64_t size_bytes,
                   std::shared_ptr<PosixIo> io);

  const std::string& path() const override { return file_->path; }
  uint64_t size_bytes() const override { return size_bytes_; }
  PendingPtr StartRead(uint64_t offset_bytes,
                       std::span<std::byte> out) override;
  PendingPtr StartWrite(uint64_t offset_bytes,
                        std::span<const std::byte> data) override;

 private:
  void MakeDirect(const std::string& directory);
  void Preallocate();
  void WriteZeros();
  PendingPtr Start(const TransferRequest& request);

  uint64_t size_bytes_;
  std::shared_ptr<PosixIo> io_;
  OpenFilePtr file_;
};

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_POSIX_SCRATCH_FILE_H_
