#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "muonstore/error.h"
#include "muonstore/file_system.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

// Unique beside `path` among the threads and processes of this machine.
std::string TemporaryName(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return StrCat(path, ".tmp.", ::getpid(), ".", counter.fetch_add(1));
}

std::string ParentOf(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// A rename would put a file in place of a device, a pipe or a link.
std::string RequireReplaceable(FileSystem& fs, std::string path) {
  constexpr int kMaxLinks = 40;
  for (int links = 0; const auto target = fs.ReadLink(path); ++links) {
    if (links == kMaxLinks) {
      throw Error(ErrorCode::kUnavailable, "too many links",
                  {.file = std::move(path)});
    }
    path = (std::filesystem::path(path).parent_path() / *target).string();
  }
  const auto status = fs.Stat(path);
  if (status && status->type != FileType::kRegular) {
    throw Error(ErrorCode::kUnavailable,
                "cannot be replaced by a file: it is none",
                {.file = std::move(path)});
  }
  return path;
}

}  // namespace

std::string ReadSmallFile(FileSystem& fs, const std::string& path,
                          uint64_t limit_bytes) {
  const auto file = fs.OpenForRead(path);
  if (file->size_bytes() > limit_bytes) {
    throw Error(ErrorCode::kResourceExhausted, "the file is too large",
                {.file = path,
                 .expected = StrCat("at most ", limit_bytes, " bytes"),
                 .found = StrCat(file->size_bytes(), " bytes")});
  }
  std::string text(file->size_bytes(), '\0');
  file->ReadAt(0, std::as_writable_bytes(std::span(text)));
  return text;
}

AtomicFile::AtomicFile(std::shared_ptr<FileSystem> fs, std::string path)
    : fs_(std::move(fs)),
      path_(RequireReplaceable(*fs_, std::move(path))),
      temporary_(TemporaryName(path_)),
      file_(fs_->CreateFile(temporary_)) {}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) {
    return;
  }
  file_.reset();
  try {
    fs_->Remove(temporary_);
  } catch (const Error&) {
    // Nothing more can be done; the temporary name says what it is.
  }
}

void AtomicFile::Commit() {
  file_->Sync();
  file_->Close();
  fs_->Rename(temporary_, path_);
  file_.reset();
  fs_->SyncDirectory(ParentOf(path_));
}

}  // namespace muonstore
