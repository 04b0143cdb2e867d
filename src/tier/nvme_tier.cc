#include <memory>
#include <utility>

#include "muonstore/error.h"
#include "muonstore/tier.h"
#include "src/base/aligned_bytes.h"
#include "src/base/str.h"
#include "src/os/posix_file_system.h"
#include "src/tier/arena_layout.h"
#include "src/tier/nvme_arena.h"

namespace muonstore {
namespace tier {
namespace {

class NvmeTier final : public Tier {
 public:
  explicit NvmeTier(const NvmeOptions& options)
      : directory_(options.directory),
        fs_(options.file_system != nullptr
                ? options.file_system
                : os::MakePosixFileSystem(
                      {.queue_depth = options.queue_depth})) {
    // What is wrong with the directory shows here.
    const AlignedBytes block(kIoBlockBytes);
    fs_->CreateScratchFile(directory_, kIoBlockBytes)
        ->StartRead(0, block.span())
        ->Wait();
  }

  std::string_view name() const override { return "nvme"; }
  bool addressable() const override { return false; }

  std::unique_ptr<Arena> CreateArena(const ArenaOptions& options) override {
    ArenaLayout layout(options);
    std::unique_ptr<ScratchFile> file;
    if (layout.total_bytes() > 0) file = TakeRoom(layout);
    return std::make_unique<NvmeArena>(std::move(layout), std::move(file),
                                       staged_, options.pinning);
  }

  uint64_t ArenaBytes(const ArenaOptions& options) const override {
    return ArenaLayout(options).total_bytes();
  }

  uint64_t available_bytes() const override {
    return fs_->AvailableBytes(directory_);
  }

  std::unique_ptr<IoMemory> RegisterMemory(
      std::span<std::byte> memory) override {
    return fs_->RegisterMemory(memory);
  }

 private:
  std::unique_ptr<ScratchFile> TakeRoom(const ArenaLayout& layout) {
    const uint64_t available = available_bytes();
    std::string reason;
    if (layout.total_bytes() <= available) {
      try {
        return fs_->CreateScratchFile(directory_, layout.total_bytes());
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kResourceExhausted) throw;
        reason = StrCat(": ", error.message());
      }
    }
    throw Error(ErrorCode::kResourceExhausted,
                StrCat("arena ", layout.name(),
                       " does not fit on this disk: free space, use more "
                       "nodes, or keep less state in this tier",
                       reason),
                {.file = directory_,
                 .expected = StrCat(layout.total_bytes(), " bytes"),
                 .found = StrCat(available, " bytes available")});
  }

  std::string directory_;
  std::shared_ptr<FileSystem> fs_;
  std::shared_ptr<StagedTransfers> staged_ =
      std::make_shared<StagedTransfers>();
};

}  // namespace
}  // namespace tier

std::unique_ptr<Tier> MakeNvmeTier(const NvmeOptions& options) {
  return std::make_unique<tier::NvmeTier>(options);
}

}  // namespace muonstore
