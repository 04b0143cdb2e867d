#include "formats/native/carried_writer.h"

#include <optional>
#include <string>
#include <utility>

#include "formats/native/carried_keys.h"
#include "formats/native/file_names.h"
#include "formats/torchfile/draft.h"
#include "formats/torchfile/torch_file_writer.h"
#include "formats/torchfile/tree_copier.h"
#include "muonstore/error.h"

namespace muonstore::native {
namespace {

// Takes what is written from front to back.
class AppendingFile final : public WritableFile {
 public:
  AppendingFile(std::string path, const TagWriter::Append& append)
      : path_(std::move(path)), append_(append) {}

  const std::string& path() const override { return path_; }
  void WriteAt(uint64_t offset_bytes,
               std::span<const std::byte> data) override {
    if (offset_bytes != position_) {
      throw Error(ErrorCode::kInternal, "written out of order",
                  {.file = path_, .offset_bytes = offset_bytes});
    }
    append_(data);
    position_ += data.size();
  }
  void Sync() override {}  // TagWriter does both.
  void Close() override {}

 private:
  std::string path_;
  const TagWriter::Append& append_;
  uint64_t position_ = 0;
};

torchfile::NodeId CopyTree(const std::optional<torchfile::TreeRef>& tree,
                           torchfile::Draft& draft) {
  if (!tree) {
    return draft.None();
  }
  torchfile::TreeCopier copier(
      draft, tree->file,
      [&](const torchfile::Value& value) -> std::optional<torchfile::NodeId> {
        if (tree->is_state && tree->is_state(value.id())) {
          return draft.None();
        }
        return std::nullopt;
      });
  return copier.Copy(tree->node);
}

}  // namespace

FileDigest WriteCarried(const torchfile::CarriedRank& carried, int32_t rank,
                        const TagWriter& tag) {
  torchfile::Draft draft;
  const torchfile::NodeId root = draft.Dict();
  draft.SetItem(root, kModelStates, CopyTree(carried.model_states, draft));
  draft.SetItem(root, kOptimStates, CopyTree(carried.optim_states, draft));
  draft.set_root(root);
  const std::string name = CarriedFileName(rank, tag.save_id());
  return tag.WriteFile(name, [&](const TagWriter::Append& append) {
    AppendingFile file(name, append);
    torchfile::TorchFileWriter(file, torchfile::TorchFilePlan(draft, "archive"))
        .Finish();
  });
}

}  // namespace muonstore::native
