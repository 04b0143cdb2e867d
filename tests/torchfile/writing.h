// What the tests of the writer share: drafts to bytes, copies, payloads.
#ifndef MUONSTORE_TESTS_TORCHFILE_WRITING_H_
#define MUONSTORE_TESTS_TORCHFILE_WRITING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "formats/torchfile/draft.h"
#include "formats/torchfile/torch_file.h"

namespace muonstore::torchfile {

// `size_bytes` bytes of a pattern that depends on the storage and the place.
std::string Pattern(uint32_t storage, uint64_t size_bytes);

// The draft as a file; declared storages are filled by Pattern().
std::string WriteDraft(const Draft& draft, const std::string& root = "archive");

// `file` through a TreeCopier and a TorchFileWriter.
std::string CopyFile(const std::shared_ptr<const TorchFile>& file);

// All bytes of a storage.
std::string StorageBytesOf(const TorchFile& file, uint32_t storage);

}  // namespace muonstore::torchfile

#endif  // MUONSTORE_TESTS_TORCHFILE_WRITING_H_
