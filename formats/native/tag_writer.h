// The files of one save, from the first to the commit.
//
// What: see tag_writer.cc for the protocol, step by step.
// Ownership: must not outlive its OutputRoot. Destroyed without Commit(), it
//   removes the files that it made, and the tag's folder if it made that.
// Threads: Create() on many threads; all else on one.
// Failures: Error of the file system; kInvalidArgument where the tag exists and
//   is not to be overwritten.
#ifndef MUONSTORE_FORMATS_NATIVE_TAG_WRITER_H_
#define MUONSTORE_FORMATS_NATIVE_TAG_WRITER_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "formats/native/manifest.h"
#include "muonstore/file_system.h"
#include "src/os/output_root.h"

namespace muonstore::native {

// 16 hexadecimal digits, at random.
std::string NewSaveId();

class TagWriter {
 public:
  TagWriter(os::OutputRoot& root, const std::string& tag, std::string save_id,
            bool overwrite);
  ~TagWriter();
  TagWriter(const TagWriter&) = delete;
  TagWriter& operator=(const TagWriter&) = delete;

  const std::string& directory() const { return directory_; }
  const std::string& save_id() const { return save_id_; }
  FileSystem& fs() const { return root_.fs(); }

  // A new file of the tag; `name` carries the save id.
  std::unique_ptr<WritableFile> Create(const std::string& name) const;
  // One that `fill` writes from front to back through its argument; durable
  // afterwards.
  using Append = std::function<void(std::span<const std::byte> bytes)>;
  FileDigest WriteFile(const std::string& name,
                       const std::function<void(const Append&)>& fill) const;

  // Files in which the folder holds this save and nothing else.
  std::shared_ptr<FileSystem> Preview() const;

  // Makes the manifest, written under its staged name, the tag's. Every file is
  // durable already.
  void Commit();
  // The tag is, or may be, this save: its files stay.
  bool committed() const { return committed_; }

 private:
  void RenameManifest();
  void RemoveOwn();
  void RemoveOld();

  os::OutputRoot& root_;
  std::string directory_;
  std::string save_id_;
  bool made_directory_ = false;
  bool committed_ = false;
};

}  // namespace muonstore::native

#endif  // MUONSTORE_FORMATS_NATIVE_TAG_WRITER_H_
