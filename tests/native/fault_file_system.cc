#include "tests/native/fault_file_system.h"

#include <filesystem>

#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

namespace stdfs = std::filesystem;

std::string FolderOf(const std::string& path) {
  return stdfs::path(path).parent_path().string();
}

class FaultyFile final : public WritableFile {
 public:
  FaultyFile(FaultFileSystem& fs, std::unique_ptr<WritableFile> base)
      : fs_(fs), base_(std::move(base)) {}

  const std::string& path() const override { return base_->path(); }
  void WriteAt(uint64_t offset_bytes,
               std::span<const std::byte> data) override {
    if (fs_.tears_next()) {
      base_->WriteAt(offset_bytes, data.first(data.size() / 2));
    }
    fs_.Count(path());
    fs_.NoteBytes(path());
    base_->WriteAt(offset_bytes, data);
  }
  void Sync() override {
    fs_.Count(path());
    fs_.NoteSync(path());
  }
  void Close() override {
    fs_.Count(path());
    base_->Close();
  }

 private:
  FaultFileSystem& fs_;
  std::unique_ptr<WritableFile> base_;
};

}  // namespace

void FaultFileSystem::Count(const std::string& path) {
  const int64_t number = num_changes_++;
  const bool fails = fault_.at >= 0 &&
                     (fault_.dies ? number >= fault_.at : number == fault_.at);
  if (fails) {
    throw Error(ErrorCode::kResourceExhausted, "the test's fault",
                {.file = path});
  }
}

void FaultFileSystem::NoteName(const std::string& path, Undo undo) {
  names_.emplace_back(FolderOf(path), std::move(undo));
}

std::unique_ptr<WritableFile> FaultFileSystem::CreateFile(
    const std::string& path) {
  Count(path);
  auto file = base().CreateFile(path);
  NoteBytes(path);
  NoteName(path, [path] { stdfs::remove(path); });
  return std::make_unique<FaultyFile>(*this, std::move(file));
}

void FaultFileSystem::Rename(const std::string& from, const std::string& to) {
  Count(from);
  const bool replaces = stdfs::exists(to);
  const std::string old = replaces ? testutil::ReadBytes(to) : "";
  base().Rename(from, to);
  NoteName(to, [=] {
    stdfs::rename(to, from);
    if (replaces) {
      testutil::WriteBytes(to, old);
    }
  });
}

void FaultFileSystem::Remove(const std::string& path) {
  Count(path);
  const std::string old = testutil::ReadBytes(path);
  base().Remove(path);
  NoteName(path, [=] { testutil::WriteBytes(path, old); });
}

void FaultFileSystem::CreateDirectories(const std::string& path) {
  Count(path);
  const bool is_new = !stdfs::exists(path);
  base().CreateDirectories(path);
  if (is_new) {
    NoteName(path, [path] { stdfs::remove_all(path); });
  }
}

void FaultFileSystem::RemoveDirectory(const std::string& path) {
  Count(path);
  base().RemoveDirectory(path);
  NoteName(path, [path] { stdfs::create_directory(path); });
}

void FaultFileSystem::SyncDirectory(const std::string& path) {
  Count(path);
  std::erase_if(names_, [&](const auto& name) { return name.first == path; });
}

void FaultFileSystem::LosePower() {
  for (const auto& [path, lost] : bytes_lost_) {
    if (stdfs::exists(path)) {
      stdfs::resize_file(path, stdfs::file_size(path) / 2);
    }
  }
  for (auto it = names_.rbegin(); it != names_.rend(); ++it) {
    it->second();
  }
}

}  // namespace muonstore::native
