// Writes the files that carried.h reads.
#ifndef MUONSTORE_FORMATS_NATIVE_CARRIED_WRITER_H_
#define MUONSTORE_FORMATS_NATIVE_CARRIED_WRITER_H_

#include <cstdint>

#include "formats/native/manifest.h"
#include "formats/native/tag_writer.h"
#include "formats/torchfile/carried_state.h"

namespace muonstore::native {

// The file of one rank of the source; durable afterwards.
FileDigest WriteCarried(const torchfile::CarriedRank& carried, int32_t rank,
                        const TagWriter& tag);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_CARRIED_WRITER_H_
