// Parts of the manifest's reader.
#ifndef MUONSTORE_FORMATS_NATIVE_MANIFEST_INFO_READ_H_
#define MUONSTORE_FORMATS_NATIVE_MANIFEST_INFO_READ_H_

#include "formats/native/json_fields.h"
#include "muonstore/checkpoint.h"

namespace muonstore::native {

// The fields that describe the run: `run`, `groups`, `momentum`, counters,
// names, findings.
void ReadInfo(Fields& root, CheckpointInfo& info);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_MANIFEST_INFO_READ_H_
