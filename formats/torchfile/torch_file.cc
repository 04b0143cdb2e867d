#include "formats/torchfile/torch_file.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "formats/torchfile/element_order.h"
#include "formats/torchfile/key_index.h"
#include "formats/torchfile/strided_read.h"
#include "formats/torchfile/zip_twin.h"
#include "src/base/str.h"

namespace muonstore::torchfile {
namespace {

enum class Kind { kZip, kPickle, kTar, kOther };

// At most `size` bytes from `offset_bytes`, fewer at the end of the file.
std::string ReadPrefix(RandomAccessFile& file, uint64_t offset_bytes,
                       size_t size) {
  const uint64_t left =
      file.size_bytes() - std::min(file.size_bytes(), offset_bytes);
  std::string prefix(std::min<uint64_t>(left, size), '\0');
  if (!prefix.empty()) {
    file.ReadAt(offset_bytes, std::as_writable_bytes(std::span(prefix)));
  }
  return prefix;
}

Kind KindOf(RandomAccessFile& file) {
  const std::string head = ReadPrefix(file, 0, 4);
  if (head.starts_with("PK")) {
    return Kind::kZip;
  }
  const bool is_binary_pickle =
      head.size() >= 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  // The magic number in protocols 0 and 1.
  if (is_binary_pickle || head == "L119") {
    return Kind::kPickle;
  }
  constexpr uint64_t kTarMagicOffset = 257;
  return ReadPrefix(file, kTarMagicOffset, 5) == "ustar" ? Kind::kTar
                                                         : Kind::kOther;
}

Contents ReadContainer(RandomAccessFile& file, MemoryBudget& budget) {
  switch (KindOf(file)) {
    case Kind::kZip:
      return ReadZipContents(file, budget);
    case Kind::kPickle:
      return ReadLegacyContents(file, budget);
    case Kind::kTar:
      throw Error(ErrorCode::kUnsupported,
                  "a tar file, as torch 0.1 wrote them; load it with torch and "
                  "save it again");
    case Kind::kOther:
      break;
  }
  if (file.size_bytes() == 0) {
    throw Error(ErrorCode::kDataLoss, "the file is empty");
  }
  throw Error(ErrorCode::kUnsupported,
              "not a file of torch.save: neither a zip archive nor a pickle");
}

Contents ReadContents(RandomAccessFile& file) {
  MemoryBudget budget(file.size_bytes());
  Contents contents = ReadContainer(file, budget);
  IndexKeys(contents.tree, budget);
  return contents;
}

}  // namespace

TorchFile::TorchFile(Passkey /*key*/, std::shared_ptr<FileSystem> fs,
                     std::string path, uint64_t file_size_bytes,
                     Contents contents)
    : fs_(std::move(fs)),
      path_(std::move(path)),
      file_size_bytes_(file_size_bytes),
      contents_(std::move(contents)),
      checks_(contents_.records) {}

std::shared_ptr<const TorchFile> TorchFile::Open(std::shared_ptr<FileSystem> fs,
                                                 const std::string& path) {
  try {
    const std::unique_ptr<RandomAccessFile> file = fs->OpenForRead(path);
    const uint64_t size = file->size_bytes();
    Contents contents = ReadContents(*file);
    return std::make_shared<TorchFile>(Passkey{}, std::move(fs), path, size,
                                       std::move(contents));
  } catch (const Error& e) {
    throw e.WithFile(path);
  }
}

bool TorchFile::HasTwinAt(const std::string& path) const {
  if (!is_zip()) {
    return false;
  }
  try {
    const std::unique_ptr<RandomAccessFile> own = fs_->OpenForRead(path_);
    const std::unique_ptr<RandomAccessFile> other = fs_->OpenForRead(path);
    return IsZipTwin(*own, records(), *other);
  } catch (const Error& e) {
    throw e.WithFile(path);
  }
}

Value TorchFile::RequireDict() const {
  if (!root().is(ValueType::kDict)) {
    throw Error(
        ErrorCode::kUnsupported,
        "the file holds no checkpoint or state dict; a whole module "
        "must be saved by its state_dict()",
        {.file = path_, .expected = "a dict", .found = root().Describe(100)});
  }
  return root();
}

void TorchFile::ReadElements(const TensorInfo& tensor, int64_t first_element,
                             std::span<std::byte> out) const {
  const auto item = static_cast<size_t>(SizeBytes(tensor.dtype));
  const auto count = static_cast<int64_t>(out.size() / item);
  const int64_t total = tensor.shape.num_elements();
  if (out.size() % item != 0 || first_element < 0 || first_element > total ||
      count > total - first_element ||
      tensor.storage >= tree().storages.size()) {
    throw Error(ErrorCode::kInvalidArgument,
                "elements outside of the tensor are asked for",
                {.file = path_,
                 .expected = StrCat("elements 0 to ", total),
                 .found = StrCat(count, " from ", first_element)});
  }
  if (count == 0) {
    return;
  }
  const StorageInfo& storage = tree().storages[tensor.storage];
  const RecordInfo& record = records()[storage.record];
  try {
    const std::unique_ptr<RandomAccessFile> file = fs_->OpenForRead(path_);
    ReadStrided(*file, storage.offset_bytes, tensor, first_element, out);
    const uint64_t begin =
        storage.offset_bytes - record.offset_bytes +
        static_cast<uint64_t>(tensor.storage_offset + first_element) * item;
    checks_.Add(*file, storage.record, begin,
                tensor.is_contiguous() ? out : std::span<std::byte>());
  } catch (const Error& e) {
    throw e.WithFile(path_);
  }
  if (is_big_endian()) {
    SwapBytes(tensor.dtype, out);
  }
  ResolveLazyBits(tensor, out);
}

bool LooksLikeTorchFile(RandomAccessFile& file) {
  const Kind kind = KindOf(file);
  return kind == Kind::kZip || kind == Kind::kPickle;
}

}  // namespace muonstore::torchfile
