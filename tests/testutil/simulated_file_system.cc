#include "tests/testutil/simulated_file_system.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "muonstore/error.h"
#include "src/base/pending.h"

namespace muonstore::testutil {
namespace {

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

[[noreturn]] void ThrowNoPower(const std::string& path) {
  throw Error(ErrorCode::kUnavailable, "the power is off", {.file = path});
}

}  // namespace

struct SimulatedFileSystem::Machine {
  std::mutex mutex;
  SimulatedDisk disk;
  std::set<std::string> locks;
  int64_t num_operations = 0;
  int64_t fail_at = -1;
  Fault fault = Fault::kError;
  bool has_power = true;
  bool has_exchange = true;
  int64_t restarts = 0;  // Files and locks of before are dead.

  // Counts an operation. True for a write that is to be half done: the caller
  // does that and then calls FailHalfDone().
  bool Count(const std::string& path, bool is_write = false) {
    if (!has_power) ThrowNoPower(path);
    if (num_operations++ != fail_at) return false;
    if (is_write &&
        (fault == Fault::kShortWrite || fault == Fault::kTornWrite)) {
      return true;
    }
    FailHalfDone(path);
  }

  [[noreturn]] void FailHalfDone(const std::string& path) {
    if (fault == Fault::kPowerLoss || fault == Fault::kTornWrite) {
      has_power = false;
      ThrowNoPower(path);
    }
    throw Error(fault == Fault::kNoSpace ? ErrorCode::kResourceExhausted
                                         : ErrorCode::kUnavailable,
                "this operation was made to fail", {.file = path});
  }

  void RequireAlive(int64_t born, const std::string& path) const {
    if (born != restarts) ThrowNoPower(path);
  }
};

namespace {

using Machine = SimulatedFileSystem::Machine;

class SimulatedReader final : public RandomAccessFile {
 public:
  SimulatedReader(std::shared_ptr<Machine> machine, NodePtr node,
                  std::string path)
      : machine_(std::move(machine)),
        node_(std::move(node)),
        path_(std::move(path)),
        size_bytes_(node_->data.size()),
        born_(machine_->restarts) {}

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return size_bytes_; }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override {
    const std::lock_guard lock(machine_->mutex);
    machine_->RequireAlive(born_, path_);
    machine_->Count(path_);
    if (offset_bytes > node_->data.size() ||
        out.size() > node_->data.size() - offset_bytes) {
      throw Error(ErrorCode::kDataLoss, "the file is cut short",
                  {.file = path_});
    }
    std::memcpy(out.data(), node_->data.data() + offset_bytes, out.size());
  }

 private:
  std::shared_ptr<Machine> machine_;
  NodePtr node_;
  std::string path_;
  uint64_t size_bytes_;
  int64_t born_;
};

// Of the base; counted.
class BaseReader final : public RandomAccessFile {
 public:
  BaseReader(std::shared_ptr<Machine> machine,
             std::unique_ptr<RandomAccessFile> file)
      : machine_(std::move(machine)), file_(std::move(file)) {}

  const std::string& path() const override { return file_->path(); }
  uint64_t size_bytes() const override { return file_->size_bytes(); }
  void ReadAt(uint64_t offset_bytes, std::span<std::byte> out) override {
    {
      const std::lock_guard lock(machine_->mutex);
      machine_->Count(path());
    }
    file_->ReadAt(offset_bytes, out);
  }

 private:
  std::shared_ptr<Machine> machine_;
  std::unique_ptr<RandomAccessFile> file_;
};

class SimulatedWriter final : public WritableFile {
 public:
  SimulatedWriter(std::shared_ptr<Machine> machine, NodePtr node,
                  std::string path)
      : machine_(std::move(machine)),
        node_(std::move(node)),
        path_(std::move(path)),
        born_(machine_->restarts) {}

  const std::string& path() const override { return path_; }
  void WriteAt(uint64_t offset_bytes,
               std::span<const std::byte> data) override {
    const std::lock_guard lock(machine_->mutex);
    machine_->RequireAlive(born_, path_);
    const bool half = machine_->Count(path_, /*is_write=*/true);
    if (half) data = data.first(data.size() / 2);
    SimulatedDisk::WriteFile(*node_, offset_bytes, AsText(data));
    if (half) machine_->FailHalfDone(path_);
  }
  void Sync() override {
    const std::lock_guard lock(machine_->mutex);
    machine_->RequireAlive(born_, path_);
    machine_->Count(path_);
    SimulatedDisk::SyncFile(*node_);
  }
  void Close() override {
    const std::lock_guard lock(machine_->mutex);
    machine_->RequireAlive(born_, path_);
    machine_->Count(path_);
  }

 private:
  std::shared_ptr<Machine> machine_;
  NodePtr node_;
  std::string path_;
  int64_t born_;
};

class SimulatedScratch final : public ScratchFile {
 public:
  SimulatedScratch(std::shared_ptr<Machine> machine, std::string path,
                   uint64_t size_bytes)
      : machine_(std::move(machine)),
        path_(std::move(path)),
        data_(size_bytes),
        born_(machine_->restarts) {}

  const std::string& path() const override { return path_; }
  uint64_t size_bytes() const override { return data_.size(); }
  PendingPtr StartRead(uint64_t offset_bytes,
                       std::span<std::byte> out) override {
    const auto from = Range(offset_bytes, out.size());
    return DoNow([&] {
      const std::lock_guard lock(machine_->mutex);
      machine_->RequireAlive(born_, path_);
      machine_->Count(path_);
      std::ranges::copy(from, out.begin());
    });
  }
  PendingPtr StartWrite(uint64_t offset_bytes,
                        std::span<const std::byte> data) override {
    const auto to = Range(offset_bytes, data.size());
    return DoNow([&] {
      const std::lock_guard lock(machine_->mutex);
      machine_->RequireAlive(born_, path_);
      const bool half = machine_->Count(path_, /*is_write=*/true);
      std::ranges::copy(half ? data.first(data.size() / 2) : data, to.begin());
      if (half) machine_->FailHalfDone(path_);
    });
  }

 private:
  std::span<std::byte> Range(uint64_t offset_bytes, size_t size_bytes) {
    if ((offset_bytes | size_bytes) % kIoBlockBytes != 0 ||
        offset_bytes > data_.size() ||
        size_bytes > data_.size() - offset_bytes) {
      throw Error(ErrorCode::kInvalidArgument,
                  "not whole blocks inside of the scratch file",
                  {.file = path_});
    }
    return std::span(data_).subspan(offset_bytes, size_bytes);
  }

  std::shared_ptr<Machine> machine_;
  std::string path_;
  std::vector<std::byte> data_;
  int64_t born_;
};

// Releasing a lock is no operation that can fail.
class SimulatedLock final : public FileLock {
 public:
  SimulatedLock(std::shared_ptr<Machine> machine, std::string path)
      : machine_(std::move(machine)),
        path_(std::move(path)),
        born_(machine_->restarts) {}
  ~SimulatedLock() override {
    const std::lock_guard lock(machine_->mutex);
    if (born_ != machine_->restarts) return;
    machine_->locks.erase(path_);
    if (machine_->has_power && machine_->disk.Find(path_) != nullptr) {
      machine_->disk.Remove(path_, /*directory=*/false);
    }
  }

 private:
  std::shared_ptr<Machine> machine_;
  std::string path_;
  int64_t born_;
};

void AddAll(const SimulatedNode& node, const std::string& path,
            std::map<std::string, std::string>& out) {
  for (const auto& [name, child] : node.entries) {
    const std::string below = path.empty() ? name : path + "/" + name;
    out[child->is_directory ? below + "/" : below] = child->data;
    AddAll(*child, below, out);
  }
}

}  // namespace

SimulatedFileSystem::SimulatedFileSystem(std::shared_ptr<FileSystem> base,
                                         std::string root)
    : base_(std::move(base)),
      root_(std::move(root)),
      machine_(std::make_shared<Machine>()) {}

SimulatedFileSystem::~SimulatedFileSystem() = default;

std::shared_ptr<SimulatedFileSystem> SimulatedFileSystem::Copy() const {
  auto copy = std::make_shared<SimulatedFileSystem>(base_, root_);
  const std::lock_guard lock(machine_->mutex);
  copy->machine_->disk = machine_->disk.Copy();
  copy->machine_->has_exchange = machine_->has_exchange;
  return copy;
}

int64_t SimulatedFileSystem::num_operations() const {
  const std::lock_guard lock(machine_->mutex);
  return machine_->num_operations;
}

void SimulatedFileSystem::FailAfter(int64_t after, Fault fault) {
  const std::lock_guard lock(machine_->mutex);
  machine_->fail_at = machine_->num_operations + after;
  machine_->fault = fault;
}

void SimulatedFileSystem::HaveNoExchange() {
  const std::lock_guard lock(machine_->mutex);
  machine_->has_exchange = false;
}

void SimulatedFileSystem::LosePower() {
  const std::lock_guard lock(machine_->mutex);
  machine_->has_power = false;
}

bool SimulatedFileSystem::has_power() const {
  const std::lock_guard lock(machine_->mutex);
  return machine_->has_power;
}

void SimulatedFileSystem::Restart(uint64_t seed) {
  const std::lock_guard lock(machine_->mutex);
  machine_->disk.Restart(seed);
  machine_->locks.clear();
  machine_->has_power = true;
  machine_->fail_at = -1;
  ++machine_->restarts;
}

std::map<std::string, std::string> SimulatedFileSystem::Everything() const {
  const std::lock_guard lock(machine_->mutex);
  std::map<std::string, std::string> out;
  AddAll(*machine_->disk.Find(""), "", out);
  return out;
}

std::optional<std::string> SimulatedFileSystem::OnDisk(
    const std::string& path) const {
  if (path == root_) return "";
  if (!path.starts_with(root_ + "/")) return std::nullopt;
  std::string below = path.substr(root_.size() + 1);
  while (!below.empty() && below.back() == '/') below.pop_back();
  return below;
}

std::string SimulatedFileSystem::Writable(const std::string& path) const {
  auto below = OnDisk(path);
  if (!below) {
    throw Error(ErrorCode::kInternal, "a write outside of the simulated disk",
                {.file = path});
  }
  return *std::move(below);
}

std::unique_ptr<RandomAccessFile> SimulatedFileSystem::OpenForRead(
    const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  const auto below = OnDisk(path);
  if (!below) {
    return std::make_unique<BaseReader>(machine_, base_->OpenForRead(path));
  }
  NodePtr node = machine_->disk.Find(*below);
  if (node == nullptr) {
    throw Error(ErrorCode::kNotFound, "no such file", {.file = path});
  }
  if (node->is_directory) {
    throw Error(ErrorCode::kUnavailable, "is a directory", {.file = path});
  }
  return std::make_unique<SimulatedReader>(machine_, std::move(node), path);
}

std::unique_ptr<WritableFile> SimulatedFileSystem::CreateFile(
    const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  return std::make_unique<SimulatedWriter>(
      machine_, machine_->disk.Create(Writable(path), false), path);
}

std::unique_ptr<ScratchFile> SimulatedFileSystem::CreateScratchFile(
    const std::string& directory, uint64_t size_bytes) {
  if (!OnDisk(directory)) {
    return base_->CreateScratchFile(directory, size_bytes);
  }
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(directory);
  return std::make_unique<SimulatedScratch>(machine_, directory, size_bytes);
}

std::optional<FileStatus> SimulatedFileSystem::Stat(const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  const auto below = OnDisk(path);
  if (!below) return base_->Stat(path);
  const NodePtr node = machine_->disk.Find(*below);
  if (node == nullptr) return std::nullopt;
  return FileStatus{
      .type = node->is_directory ? FileType::kDirectory : FileType::kRegular,
      .size_bytes = node->data.size(),
      .allocated_bytes = node->data.size()};
}

std::vector<std::string> SimulatedFileSystem::List(
    const std::string& directory) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(directory);
  const auto below = OnDisk(directory);
  if (!below) return base_->List(directory);
  const NodePtr node = machine_->disk.Find(*below);
  if (node == nullptr || !node->is_directory) {
    throw Error(ErrorCode::kNotFound, "no such directory", {.file = directory});
  }
  std::vector<std::string> names;
  for (const auto& [name, child] : node->entries) names.push_back(name);
  return names;
}

std::optional<std::string> SimulatedFileSystem::ReadLink(
    const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  return OnDisk(path) ? std::nullopt : base_->ReadLink(path);
}

void SimulatedFileSystem::Rename(const std::string& from,
                                 const std::string& to) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(from);
  machine_->disk.Rename(Writable(from), Writable(to));
}

void SimulatedFileSystem::Remove(const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  machine_->disk.Remove(Writable(path), /*directory=*/false);
}

void SimulatedFileSystem::CreateDirectories(const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  const std::string below = Writable(path);
  for (size_t at = 0; at < below.size();) {
    const size_t end = std::min(below.find('/', at), below.size());
    at = end + 1;
    const std::string parent = below.substr(0, end);
    if (machine_->disk.Find(parent) == nullptr) {
      machine_->disk.Create(parent, /*directory=*/true);
    }
  }
}

void SimulatedFileSystem::RemoveDirectory(const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  machine_->disk.Remove(Writable(path), /*directory=*/true);
}

bool SimulatedFileSystem::Exchange(const std::string& a, const std::string& b) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(a);
  if (!machine_->has_exchange) return false;
  machine_->disk.Exchange(Writable(a), Writable(b));
  return true;
}

uint64_t SimulatedFileSystem::AvailableBytes(const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  return uint64_t{1} << 40;
}

std::unique_ptr<FileLock> SimulatedFileSystem::TryLock(
    const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  const std::string below = Writable(path);
  if (!machine_->locks.insert(below).second) return nullptr;
  if (machine_->disk.Find(below) == nullptr) {
    machine_->disk.Create(below, /*directory=*/false);
  }
  return std::make_unique<SimulatedLock>(machine_, below);
}

void SimulatedFileSystem::SyncDirectory(const std::string& path) {
  const std::lock_guard lock(machine_->mutex);
  machine_->Count(path);
  machine_->disk.SyncDirectory(Writable(path));
}

}  // namespace muonstore::testutil
