#include "src/inspect/npy.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "muonstore/error.h"
#include "src/base/str.h"

namespace muonstore {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kMaxHeaderBytes = 65535;  // Format 1.0: a 16-bit length.
constexpr int64_t kBlockBytes = 4 << 20;

// NumPy's type for a stored dtype.
struct NpyType {
  const char* descr = "";
  // Widened to float; the stored bytes are reals of type `part`.
  bool widened = false;
  DType part = DType::kF32;
};

// Types that are written as they are.
constexpr std::array<std::pair<DType, const char*>, 14> kDirect = {{
    {DType::kF64, "<f8"},
    {DType::kF32, "<f4"},
    {DType::kF16, "<f2"},
    {DType::kI64, "<i8"},
    {DType::kI32, "<i4"},
    {DType::kI16, "<i2"},
    {DType::kI8, "|i1"},
    {DType::kU64, "<u8"},
    {DType::kU32, "<u4"},
    {DType::kU16, "<u2"},
    {DType::kU8, "|u1"},
    {DType::kBool, "|b1"},
    {DType::kC128, "<c16"},
    {DType::kC64, "<c8"},
}};

NpyType TypeFor(DType dtype) {
  for (const auto& [direct, descr] : kDirect) {
    if (direct == dtype) return {descr};
  }
  if (dtype == DType::kC32) return {"<c8", true, DType::kF16};
  if (IsFloatingPoint(dtype)) return {"<f4", true, dtype};
  throw Error(ErrorCode::kUnsupported,
              StrCat("NumPy has no type that holds ", DTypeName(dtype)));
}

std::vector<int64_t> RowShape(const Shape& shape, RowRange rows) {
  std::vector<int64_t> dims = shape.dims();
  const bool part_of_scalar = dims.empty() && rows.size() != 1;
  if (part_of_scalar || rows.begin < 0 || rows.begin > rows.end ||
      rows.end > shape.num_rows()) {
    throw Error(ErrorCode::kInvalidArgument, "the rows are outside the tensor",
                {.expected = StrCat("within 0:", shape.num_rows()),
                 .found = StrCat(rows.begin, ":", rows.end)});
  }
  if (!dims.empty()) dims[0] = rows.size();
  return dims;
}

// Bytes as stored -> bytes of the file.
std::vector<std::byte> Widen(const NpyType& type,
                             std::vector<std::byte> stored) {
  if (!type.widened) return stored;
  const size_t count =
      stored.size() / static_cast<size_t>(SizeBytes(type.part));
  std::vector<float> values(count);
  ConvertToF32(type.part, stored, values);
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

class NpyStream {
 public:
  NpyStream(WritableFile& file, const std::string& header) : file_(file) {
    Append(std::as_bytes(std::span(header)));
  }

  void Append(std::span<const std::byte> data) {
    file_.WriteAt(size_bytes_, data);
    size_bytes_ += data.size();
  }

  uint64_t size_bytes() const { return size_bytes_; }

 private:
  WritableFile& file_;
  uint64_t size_bytes_ = 0;
};

}  // namespace

std::string NpyHeader(const std::string& descr,
                      std::span<const int64_t> shape) {
  std::string tuple;
  for (const int64_t dim : shape) tuple += StrCat(dim, ", ");
  // One dimension keeps its comma, as Python writes it.
  if (shape.size() == 1) tuple.pop_back();
  if (shape.size() > 1) tuple.resize(tuple.size() - 2);
  std::string dictionary =
      StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
             tuple, "), }");
  constexpr size_t kPrefix = 10;  // Magic, version and length.
  const size_t used = kPrefix + dictionary.size() + 1;
  dictionary.append((kAlignment - used % kAlignment) % kAlignment, ' ');
  dictionary += '\n';
  if (dictionary.size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::kUnsupported, "too many dimensions for a .npy file");
  }
  std::string header = "\x93NUMPY";
  header += '\x01';
  header += '\0';
  header += static_cast<char>(dictionary.size() & 0xFF);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

NpyResult WriteNpy(std::shared_ptr<FileSystem> fs, const Checkpoint& checkpoint,
                   const NpyRequest& request) {
  const CheckpointTensor& tensor = checkpoint.tensors()[request.tensor];
  const NpyType type = TypeFor(tensor.dtype);
  const std::vector<int64_t> dims = RowShape(tensor.shape, request.rows);
  const int64_t row = tensor.shape.row_elements();
  const ElementRange range{request.rows.begin * row, request.rows.end * row};
  const int64_t stored_bytes = SizeBytes(tensor.dtype);
  const int64_t block = kBlockBytes / stored_bytes;

  AtomicFile target(std::move(fs), request.path);
  NpyStream stream(target.file(), NpyHeader(type.descr, dims));
  ByteProgress progress(request.progress,
                        static_cast<uint64_t>(range.size() * stored_bytes));
  for (int64_t at = range.begin; at < range.end; at += block) {
    const ElementRange part{at, std::min(range.end, at + block)};
    std::vector<std::byte> bytes(
        static_cast<size_t>(part.size() * stored_bytes));
    ReadTensor(checkpoint, request.tensor, part, bytes);
    progress.Add(bytes.size());
    stream.Append(Widen(type, std::move(bytes)));
  }
  target.Commit();
  return {.descr = type.descr,
          .widened = type.widened,
          .size_bytes = stream.size_bytes()};
}

}  // namespace muonstore
