#include "formats/safetensors/header.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "muonstore/error.h"
#include "src/base/str.h"

#include <nlohmann/json.hpp>

namespace muonstore::safetensors {
namespace {

using Json = nlohmann::json;

struct Name {
  DType dtype;
  std::string_view text;
};

// In the order in which the library lays tensors out.
constexpr std::array<Name, 20> kNames = {{
    {DType::kU64, "U64"},
    {DType::kI64, "I64"},
    {DType::kF64, "F64"},
    {DType::kC64, "C64"},
    {DType::kF32, "F32"},
    {DType::kU32, "U32"},
    {DType::kI32, "I32"},
    {DType::kBF16, "BF16"},
    {DType::kF16, "F16"},
    {DType::kU16, "U16"},
    {DType::kI16, "I16"},
    {DType::kF8E5M2FNUZ, "F8_E5M2FNUZ"},
    {DType::kF8E4M3FNUZ, "F8_E4M3FNUZ"},
    {DType::kF8E8M0FNU, "F8_E8M0"},
    {DType::kF8E4M3FN, "F8_E4M3"},
    {DType::kF8E5M2, "F8_E5M2"},
    {DType::kI8, "I8"},
    {DType::kU8, "U8"},
    {DType::kF4E2M1FNx2, "F4"},
    {DType::kBool, "BOOL"},
}};

constexpr const char* kMetadataKey = "__metadata__";
constexpr size_t kLengthBytes = 8;

size_t PositionOf(DType dtype) {
  const auto it = std::find_if(kNames.begin(), kNames.end(),
                               [&](const Name& n) { return n.dtype == dtype; });
  return static_cast<size_t>(it - kNames.begin());
}

std::optional<DType> Parse(std::string_view text) {
  const auto it = std::find_if(kNames.begin(), kNames.end(),
                               [&](const Name& n) { return n.text == text; });
  return it == kNames.end() ? std::nullopt : std::optional(it->dtype);
}

// A byte of two 4-bit values counts as two elements in the format.
std::vector<int64_t> DimsInFile(const TensorEntry& entry) {
  std::vector<int64_t> dims = entry.shape.dims();
  if (entry.dtype == DType::kF4E2M1FNx2 && !dims.empty()) {
    dims.back() = CheckedMultiply(dims.back(), 2, "elements");
  }
  return dims;
}

Shape ShapeFromFile(DType dtype, std::vector<int64_t> dims) {
  if (dtype == DType::kF4E2M1FNx2 && !dims.empty()) {
    if (dims.back() % 2 != 0) {
      throw Error(ErrorCode::kUnsupported,
                  "rows of an odd number of 4-bit values are not supported");
    }
    dims.back() /= 2;
  }
  return Shape(std::move(dims));
}

void AppendEntry(const TensorEntry& entry, std::string& out) {
  out += StrCat(",", Json(entry.name).dump(), ":{\"dtype\":\"",
                kNames[PositionOf(entry.dtype)].text, "\",\"shape\":[");
  const std::vector<int64_t> dims = DimsInFile(entry);
  for (size_t i = 0; i < dims.size(); ++i) {
    out += StrCat(i == 0 ? "" : ",", dims[i]);
  }
  out += StrCat("],\"data_offsets\":[", entry.begin_bytes, ",", entry.end_bytes,
                "]}");
}

Error Damaged(std::string message, std::string tensor = {}) {
  return Error(ErrorCode::kDataLoss, std::move(message),
               {.tensor = std::move(tensor)});
}

std::vector<int64_t> ToInts(const Json& json, const std::string& tensor) {
  std::vector<int64_t> values;
  if (!json.is_array()) throw Damaged("a list is missing", tensor);
  for (const Json& item : json) {
    if (!item.is_number_unsigned() ||
        item.get<uint64_t>() > uint64_t{INT64_MAX}) {
      throw Damaged("a number is none", tensor);
    }
    values.push_back(item.get<int64_t>());
  }
  return values;
}

TensorEntry ToEntry(const std::string& name, const Json& json) {
  if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || !json["dtype"].is_string()) {
    throw Damaged("dtype, shape or data_offsets is missing", name);
  }
  const auto dtype = Parse(json["dtype"].get<std::string>());
  if (!dtype) {
    throw Error(
        ErrorCode::kUnsupported, "an unknown dtype",
        {.tensor = name, .found = Printable(json["dtype"].get<std::string>())});
  }
  const std::vector<int64_t> offsets = ToInts(json["data_offsets"], name);
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    throw Damaged("data_offsets are no range", name);
  }
  return {.name = name,
          .dtype = *dtype,
          .shape = ShapeFromFile(*dtype, ToInts(json["shape"], name)),
          .begin_bytes = static_cast<uint64_t>(offsets[0]),
          .end_bytes = static_cast<uint64_t>(offsets[1])};
}

// Places follow one another and fill the data.
void CheckPlaces(std::vector<TensorEntry>& entries, uint64_t data_bytes) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::tie(a.begin_bytes, a.end_bytes) <
                            std::tie(b.begin_bytes, b.end_bytes);
                   });
  uint64_t end = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin_bytes != end ||
        entry.end_bytes - entry.begin_bytes != SizeBytes(entry)) {
      throw Damaged("tensors overlap, leave a gap or have another size",
                    entry.name);
    }
    end = entry.end_bytes;
  }
  if (end != data_bytes) {
    throw Error(ErrorCode::kDataLoss, "the file has another size",
                {.expected = StrCat(end, " bytes of tensors"),
                 .found = StrCat(data_bytes)});
  }
}

std::string ReadText(RandomAccessFile& file) {
  if (file.size_bytes() < kLengthBytes) throw Damaged("too short for a header");
  std::array<std::byte, kLengthBytes> bytes{};
  file.ReadAt(0, bytes);
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(bytes[i]);
  }
  if (length > kMaxHeaderBytes || length > file.size_bytes() - kLengthBytes) {
    throw Error(ErrorCode::kDataLoss, "the header's length makes no sense",
                {.offset_bytes = 0, .found = StrCat(length, " bytes")});
  }
  std::string text(length, '\0');
  file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

uint64_t SizeBytes(const TensorEntry& entry) {
  return static_cast<uint64_t>(CheckedMultiply(
      entry.shape.num_elements(), SizeBytes(entry.dtype), "bytes of a tensor"));
}

void RequireWritable(const std::string& name, DType dtype) {
  if (PositionOf(dtype) == kNames.size()) {
    throw Error(ErrorCode::kUnsupported,
                StrCat("safetensors has no dtype ", DTypeName(dtype)),
                {.tensor = name});
  }
  // Broken bytes do not come back.
  const std::string text =
      Json(name).dump(-1, ' ', false, Json::error_handler_t::ignore);
  if (Json::parse(text, nullptr, false) != name) {
    throw Error(ErrorCode::kUnsupported,
                "safetensors cannot hold a name that is not UTF-8",
                {.tensor = Printable(name)});
  }
  if (name == kMetadataKey) {
    throw Error(ErrorCode::kUnsupported, "safetensors reserves this name",
                {.tensor = name});
  }
}

bool IsBefore(const TensorEntry& a, const TensorEntry& b) {
  const size_t position_a = PositionOf(a.dtype);
  const size_t position_b = PositionOf(b.dtype);
  return std::tie(position_a, a.name) < std::tie(position_b, b.name);
}

std::string WriteHeader(std::span<const TensorEntry> entries) {
  std::string text = StrCat("{\"", kMetadataKey, R"(":{"format":"pt"})");
  for (const TensorEntry& entry : entries) AppendEntry(entry, text);
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  if (text.size() > kMaxHeaderBytes) {
    throw Error(ErrorCode::kUnsupported,
                "too many tensors for one safetensors file; a smaller "
                "--max-shard-size makes more files",
                {.expected = StrCat("a header of ", kMaxHeaderBytes, " bytes"),
                 .found = StrCat(text.size())});
  }
  std::string header;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    header += static_cast<char>(text.size() >> (8 * i) & 0xFF);
  }
  return header + text;
}

Header ReadHeader(RandomAccessFile& file) {
  try {
    const std::string text = ReadText(file);
    const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) throw Damaged("the header is no JSON object");
    Header header;
    header.data_offset_bytes = kLengthBytes + text.size();
    for (const auto& [name, value] : json.items()) {
      if (name != kMetadataKey) {
        header.entries.push_back(ToEntry(name, value));
      }
    }
    CheckPlaces(header.entries, file.size_bytes() - header.data_offset_bytes);
    return header;
  } catch (const Error& error) {
    throw error.WithFile(file.path());
  }
}

}  // namespace muonstore::safetensors
