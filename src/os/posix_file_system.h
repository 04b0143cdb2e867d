// PosixFileSystem() with other settings for its asynchronous transfers.
#ifndef MUONSTORE_SRC_OS_POSIX_FILE_SYSTEM_H_
#define MUONSTORE_SRC_OS_POSIX_FILE_SYSTEM_H_

#include <memory>

#include "muonstore/file_system.h"
#include "src/os/io/engine.h"

namespace muonstore::os {

std::shared_ptr<FileSystem> MakePosixFileSystem(const IoOptions& options);

}  // namespace muonstore::os

#endif  // MUONSTORE_SRC_OS_POSIX_FILE_SYSTEM_H_
