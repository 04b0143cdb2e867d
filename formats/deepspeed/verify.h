// Is a DeepSpeed checkpoint whole? Every fault, not only the first.
//
// In this order: names and counts of files; structure, agreement of ranks and
// layout (parts.h, agreement.h, state_table.h); every byte against its CRC-32;
// coverage of every tensor; replicas of whole matrices against each other; the
// file's own 16-bit weights against round(master). `quick` stops before bytes
// are read.
#ifndef MUONSTORE_FORMATS_DEEPSPEED_VERIFY_H_
#define MUONSTORE_FORMATS_DEEPSPEED_VERIFY_H_

#include <memory>
#include <string>

#include "muonstore/file_system.h"
#include "muonstore/open.h"

namespace muonstore::deepspeed {

VerifyReport VerifyTag(std::shared_ptr<FileSystem> fs, const std::string& path,
                       const VerifyOptions& options);

}  // namespace muonstore::deepspeed

#endif  // MUONSTORE_FORMATS_DEEPSPEED_VERIFY_H_
