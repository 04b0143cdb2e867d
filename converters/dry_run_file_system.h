// A file system that takes writes and makes nothing of them.
//
// What: reads pass through, so that plans and checks of a conversion run as
//   they would; nothing is created, changed, locked or removed.
// Threads: as FileSystem.
// Failures: those of the reads. Reading back what was written is kNotFound.

#ifndef MUONSTORE_CONVERTERS_DRY_RUN_FILE_SYSTEM_H_
#define MUONSTORE_CONVERTERS_DRY_RUN_FILE_SYSTEM_H_

#include <memory>

#include "muonstore/file_system.h"

namespace muonstore {

std::shared_ptr<FileSystem> DryRunFileSystem(std::shared_ptr<FileSystem> base);

}  // namespace muonstore

#endif  // MUONSTORE_CONVERTERS_DRY_RUN_FILE_SYSTEM_H_
