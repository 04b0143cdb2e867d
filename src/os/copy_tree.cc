#include "src/os/copy_tree.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <vector>

#include "src/base/str.h"
#include "src/os/os_error.h"

namespace muonstore::os {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr mode_t kExecutable = S_IXUSR | S_IXGRP | S_IXOTH;

// To whom the new file may be read may execute it.
void KeepExecutable(const std::string& from, const std::string& to) {
  struct stat source {};
  struct stat target {};
  if (::stat(from.c_str(), &source) != 0 || (source.st_mode & S_IXUSR) == 0 ||
      ::stat(to.c_str(), &target) != 0) {
    return;
  }
  const mode_t readable = target.st_mode & (S_IRUSR | S_IRGRP | S_IROTH);
  if (::chmod(to.c_str(), target.st_mode | ((readable >> 2) & kExecutable)) !=
      0) {
    ThrowErrno(errno, "change the mode of", to);
  }
}

void CopyFile(FileSystem& fs, const std::string& from, const std::string& to,
              const std::function<void()>& on_block) {
  const auto source = fs.OpenForRead(from);
  const auto target = fs.CreateFile(to);
  std::vector<std::byte> block;
  for (uint64_t at = 0; at < source->size_bytes(); at += block.size()) {
    block.resize(std::min(kBlockBytes, source->size_bytes() - at));
    source->ReadAt(at, block);
    target->WriteAt(at, block);
    on_block();
  }
  target->Sync();
  target->Close();
  KeepExecutable(from, to);
}

}  // namespace

void CopyTree(FileSystem& fs, const std::string& from, const std::string& to,
              const std::function<void()>& on_block) {
  on_block();
  if (const auto link = fs.ReadLink(from)) {
    if (::symlink(link->c_str(), to.c_str()) != 0) {
      ThrowErrno(errno, "link", to);
    }
    return;
  }
  const auto status = fs.Stat(from);
  if (status && status->type == FileType::kRegular) {
    CopyFile(fs, from, to, on_block);
  } else if (status && status->type == FileType::kDirectory) {
    fs.CreateDirectories(to);
    for (const std::string& name : fs.List(from)) {
      CopyTree(fs, StrCat(from, "/", name), StrCat(to, "/", name), on_block);
    }
    fs.SyncDirectory(to);
  }
}

}  // namespace muonstore::os
