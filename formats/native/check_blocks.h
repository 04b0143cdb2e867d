// Do the places of blocks and segments tile the rank files?
#ifndef MUONSTORE_FORMATS_NATIVE_CHECK_BLOCKS_H_
#define MUONSTORE_FORMATS_NATIVE_CHECK_BLOCKS_H_

#include "formats/native/block_table.h"
#include "formats/native/layout.h"
#include "formats/native/manifest.h"

namespace muonstore::native {

// Each rank file is its first page, its segments one behind the other (whole
// pages each, or their compressed blocks), and the tail. Error(kDataLoss) for
// anything else, so that every byte has its checksum or is known to be zero.
void CheckBlocks(const Manifest& manifest, const Layout& layout,
                 const BlockTable& blocks);

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_CHECK_BLOCKS_H_
