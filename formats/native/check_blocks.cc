#include "formats/native/check_blocks.h"

#include <algorithm>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore::native {
namespace {

class RankChecker {
 public:
  RankChecker(const Manifest& manifest, int32_t rank)
      : manifest_(manifest),
        file_(manifest.files[static_cast<size_t>(rank)]),
        rank_(rank) {
    Require(file_.size_bytes >= kPageBytes, "the file is too small");
  }

  void Segment(uint64_t offset, uint64_t bytes, std::span<const Block> blocks) {
    Require(offset == position_, "a segment does not follow the one before");
    uint64_t rest = bytes;
    for (const Block& block : blocks) {
      const uint64_t length = std::min(rest, manifest_.block_bytes);
      Require(block.offset_bytes == position_ && block.stored_bytes > 0 &&
                  block.stored_bytes <= file_.size_bytes - position_ &&
                  (manifest_.compressed ? block.stored_bytes <= MostStored()
                                        : block.stored_bytes == length),
              "a block does not follow the one before");
      position_ += block.stored_bytes;
      rest -= length;
    }
    if (!manifest_.compressed) {
      position_ += (kPageBytes - position_ % kPageBytes) % kPageBytes;
      Require(position_ <= file_.size_bytes, "the file is too small");
    }
  }

  void End() const {
    Require(file_.tail_offset == position_, "the payload ends elsewhere");
  }

 private:
  // No block grows by more when it is compressed.
  uint64_t MostStored() const {
    return manifest_.block_bytes + manifest_.block_bytes / 128 + 1024;
  }

  void Require(bool holds, std::string_view message) const {
    if (!holds) {
      throw Error(ErrorCode::kDataLoss,
                  StrCat("the places of rank ", rank_, " are wrong: ", message),
                  {.offset_bytes = position_});
    }
  }

  const Manifest& manifest_;
  const RankFile& file_;
  int32_t rank_;
  uint64_t position_ = kPageBytes;
};

}  // namespace

void CheckBlocks(const Manifest& manifest, const Layout& layout,
                 const BlockTable& blocks) {
  for (int32_t rank = 0; rank < layout.num_ranks(); ++rank) {
    RankChecker checker(manifest, rank);
    const auto& offsets =
        manifest.files[static_cast<size_t>(rank)].segment_offsets;
    const size_t first = layout.first_segment(rank);
    for (size_t i = 0; i < offsets.size(); ++i) {
      checker.Segment(offsets[i], layout.segment_bytes(first + i),
                      blocks.blocks(first + i));
    }
    checker.End();
  }
}

}  // namespace muonstore::native
