#include "formats/native/tag_files.h"

#include <algorithm>
#include <set>
#include <utility>

#include "formats/native/check_blocks.h"
#include "formats/native/file_names.h"
#include "formats/native/hash.h"
#include "formats/native/manifest_file.h"
#include "formats/native/manifest_names.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

class Opener {
 public:
  explicit Opener(TagFiles& tag) : tag_(tag) {}

  void Run() {
    const Manifest& manifest = tag_.manifest;
    for (size_t rank = 0; rank < manifest.files.size(); ++rank) {
      Expect(tag_.rank_path(static_cast<int32_t>(rank)),
             manifest.files[rank].size_bytes, tag_.problems);
    }
    for (size_t rank = 0; rank < manifest.carried.size(); ++rank) {
      Expect(tag_.carried_path(static_cast<int32_t>(rank)),
             manifest.carried[rank].size_bytes, tag_.problems);
    }
    if (manifest.view) {
      Expect(tag_.view_path(), manifest.view->size_bytes, tag_.view_problems);
    }
    expected_.insert(StrCat(tag_.directory, "/", kManifestName));
    if (Expect(tag_.checksums_path(), manifest.checksums.size_bytes,
               tag_.problems)) {
      ReadBlocks();
    }
    CountFiles();
  }

 private:
  bool Expect(const std::string& path, uint64_t size_bytes,
              std::vector<Error>& problems) {
    expected_.insert(path);
    const auto status = tag_.fs->Stat(path);
    if (status && status->type == FileType::kRegular &&
        status->size_bytes == size_bytes) {
      return true;
    }
    problems.emplace_back(
        ErrorCode::kDataLoss,
        status ? "the file has another size than its manifest says"
               : "a file of the checkpoint is missing",
        ErrorPlace{.file = path,
                   .expected = StrCat(size_bytes, " bytes"),
                   .found = status ? StrCat(status->size_bytes) : "none"});
    return false;
  }

  void ReadBlocks() {
    const Manifest& manifest = tag_.manifest;
    const std::string path = tag_.checksums_path();
    try {
      const uint64_t bytes =
          BlockTable::FileBytes(*tag_.layout, manifest.block_bytes);
      if (bytes != manifest.checksums.size_bytes) {
        throw Error(ErrorCode::kDataLoss, "the table has another size",
                    {.expected = StrCat(bytes, " bytes"),
                     .found = StrCat(manifest.checksums.size_bytes)});
      }
      const std::string text = ReadSmallFile(*tag_.fs, path, bytes);
      const uint64_t digest = Hash64(std::as_bytes(std::span(text)));
      if (digest != manifest.checksums.digest) {
        throw Error(ErrorCode::kDataLoss, "the table of checksums is damaged",
                    {.expected = ToHex(manifest.checksums.digest),
                     .found = ToHex(digest)});
      }
      BlockTable blocks(*tag_.layout, manifest.block_bytes);
      blocks.Decode(text);
      CheckBlocks(manifest, *tag_.layout, blocks);
      tag_.blocks = std::move(blocks);
    } catch (const Error& error) {
      tag_.problems.push_back(error.WithFile(path));
    }
  }

  void CountFiles() {
    for (const std::string& name : tag_.fs->List(tag_.directory)) {
      const std::string path = StrCat(tag_.directory, "/", name);
      const auto status = tag_.fs->Stat(path);
      if (!expected_.contains(path)) {
        tag_.extra_files.push_back(Printable(name));
      }
      if (status && status->type == FileType::kRegular) {
        ++tag_.num_files;
        tag_.size_bytes += status->size_bytes;
        tag_.modified_ns = std::max(tag_.modified_ns, status->modified_ns);
      }
    }
  }

  TagFiles& tag_;
  std::set<std::string> expected_;
};

}  // namespace

std::string TagFiles::rank_path(int32_t rank) const {
  return StrCat(directory, "/", RankFileName(rank, manifest.save_id));
}

std::string TagFiles::checksums_path() const {
  return StrCat(directory, "/", ChecksumsName(manifest.save_id));
}

std::string TagFiles::carried_path(int32_t rank) const {
  return StrCat(directory, "/", CarriedFileName(rank, manifest.save_id));
}

std::string TagFiles::view_path() const {
  std::string staged = StrCat(directory, "/", StagedViewName(manifest.save_id));
  return fs->Stat(staged) ? staged : StrCat(directory, "/", kViewName);
}

TagFiles OpenTagFiles(std::shared_ptr<FileSystem> fs,
                      const std::string& directory) {
  TagFiles tag;
  tag.fs = std::move(fs);
  tag.directory = directory;
  tag.manifest = ReadManifest(*tag.fs, directory);
  try {
    tag.layout.emplace(tag.manifest);
  } catch (const Error& error) {
    throw error.WithFile(StrCat(directory, "/", kManifestName));
  }
  Opener(tag).Run();
  return tag;
}

}  // namespace muonstore::native
