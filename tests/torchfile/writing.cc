#include "tests/torchfile/writing.h"

#include <algorithm>
#include <span>

#include "formats/torchfile/torch_file_writer.h"
#include "formats/torchfile/tree_copier.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/memory_writable_file.h"

namespace muonstore::torchfile {

std::string Pattern(uint32_t storage, uint64_t size_bytes) {
  std::string bytes(size_bytes, '\0');
  for (uint64_t i = 0; i < size_bytes; ++i) {
    bytes[i] = static_cast<char>(i * 7 + i / 251 + uint64_t{31} * storage);
  }
  return bytes;
}

std::string WriteDraft(const Draft& draft, const std::string& root) {
  MemoryWritableFile file;
  TorchFilePlan plan(draft, root);
  const auto segments = plan.segments();
  TorchFileWriter writer(file, std::move(plan));
  for (const StorageSegment& segment : segments) {
    const std::string bytes = Pattern(segment.storage, segment.size_bytes);
    // In two pieces.
    const auto all = std::as_bytes(std::span(bytes));
    writer.WriteStorage(segment.storage, all.first(all.size() / 3));
    writer.WriteStorage(segment.storage, all.subspan(all.size() / 3));
  }
  writer.Finish();
  return std::move(file.bytes);
}

std::string CopyFile(const std::shared_ptr<const TorchFile>& file) {
  Draft draft;
  draft.set_root(TreeCopier(draft, file).Copy(file->root()));
  return WriteDraft(draft, file->is_zip() ? file->archive_root() : "archive");
}

std::string StorageBytesOf(const TorchFile& file, uint32_t storage) {
  const StorageInfo& info = file.tree().storages[storage];
  TensorInfo all;
  all.storage = storage;
  all.dtype = info.dtype;
  all.shape = Shape({info.num_elements});
  all.strides = {1};
  return ReadAll(file, all);
}

}  // namespace muonstore::torchfile
