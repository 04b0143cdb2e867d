// Whole spans of elements. Elements are loaded and stored by memcpy, since the
// bytes of a file have no alignment; the loops have no branches, so that the
// compiler vectorizes them.
#include <cstring>

#include "muonstore/dtype.h"
#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/tensor/float_bits.h"

namespace muonstore {
namespace {

void CheckByteCount(DType dtype, size_t num_elements, size_t found_bytes) {
  const auto size = static_cast<size_t>(SizeBytes(dtype));
  if (found_bytes % size == 0 && found_bytes / size == num_elements) {
    return;
  }
  throw Error(ErrorCode::kInvalidArgument,
              StrCat("the buffers of a conversion do not fit: ", num_elements,
                     " elements of ", DTypeName(dtype)),
              {.expected = StrCat(num_elements, " * ", size, " bytes"),
               .found = StrCat(found_bytes, " bytes")});
}

[[noreturn]] void ThrowNotReal(DType dtype) {
  throw Error(
      ErrorCode::kUnsupported,
      StrCat("elements of dtype ", DTypeName(dtype),
             " cannot be read as real numbers; dump them in their dtype"));
}

template <typename Stored, typename Out, typename Widen>
void Transform(std::span<const std::byte> in, std::span<Out> out, Widen widen) {
  const std::byte* source = in.data();
  Out* dest = out.data();
  const size_t count = out.size();
  for (size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, source + i * sizeof(Stored), sizeof(Stored));
    dest[i] = static_cast<Out>(widen(stored));
  }
}

template <typename Stored, typename Out>
void Cast(std::span<const std::byte> in, std::span<Out> out) {
  Transform<Stored>(in, out, [](Stored value) { return value; });
}

template <typename Out>
void ConvertFloat8(DType dtype, std::span<const std::byte> in,
                   std::span<Out> out) {
  const std::array<float, 256>& values = Float8Values(dtype);
  Transform<uint8_t>(in, out, [&values](uint8_t bits) { return values[bits]; });
}

template <typename Out>
void ConvertFloat(DType dtype, std::span<const std::byte> in,
                  std::span<Out> out) {
  switch (dtype) {
    case DType::kF64:
      return Cast<double>(in, out);
    case DType::kF32:
      return Cast<float>(in, out);
    case DType::kF16:
      return Transform<uint16_t>(in, out, FloatFromF16);
    case DType::kBF16:
      return Transform<uint16_t>(in, out, FloatFromBF16);
    default:
      return ConvertFloat8(dtype, in, out);
  }
}

template <typename Out>
void ConvertInteger(DType dtype, std::span<const std::byte> in,
                    std::span<Out> out) {
  switch (dtype) {
    case DType::kI64:
      return Cast<int64_t>(in, out);
    case DType::kI32:
      return Cast<int32_t>(in, out);
    case DType::kI16:
      return Cast<int16_t>(in, out);
    case DType::kI8:
      return Cast<int8_t>(in, out);
    case DType::kU64:
      return Cast<uint64_t>(in, out);
    case DType::kU32:
      return Cast<uint32_t>(in, out);
    case DType::kU16:
      return Cast<uint16_t>(in, out);
    case DType::kU8:
      return Cast<uint8_t>(in, out);
    case DType::kBool:
      return Transform<uint8_t>(in, out,
                                [](uint8_t byte) { return byte != 0; });
    default:
      ThrowNotReal(dtype);
  }
}

template <typename Out>
void Convert(DType dtype, std::span<const std::byte> in, std::span<Out> out) {
  CheckByteCount(dtype, out.size(), in.size());
  if (IsFloatingPoint(dtype)) {
    ConvertFloat(dtype, in, out);
  } else {
    ConvertInteger(dtype, in, out);
  }
}

template <typename Stored, typename Narrow>
void Store(std::span<const float> in, std::span<std::byte> out, Narrow narrow) {
  const float* source = in.data();
  std::byte* dest = out.data();
  const size_t count = in.size();
  for (size_t i = 0; i < count; ++i) {
    const Stored stored = narrow(source[i]);
    std::memcpy(dest + i * sizeof(Stored), &stored, sizeof(Stored));
  }
}

}  // namespace

void ConvertToF64(DType dtype, std::span<const std::byte> in,
                  std::span<double> out) {
  Convert(dtype, in, out);
}

void ConvertToF32(DType dtype, std::span<const std::byte> in,
                  std::span<float> out) {
  Convert(dtype, in, out);
}

void ConvertFromF32(std::span<const float> in, DType dtype,
                    std::span<std::byte> out) {
  CheckByteCount(dtype, in.size(), out.size());
  switch (dtype) {
    case DType::kF64:
      return Store<double>(in, out, [](float value) { return double{value}; });
    case DType::kF32:
      return Store<float>(in, out, [](float value) { return value; });
    case DType::kF16:
      return Store<uint16_t>(in, out, F16FromFloat);
    case DType::kBF16:
      return Store<uint16_t>(in, out, BF16FromFloat);
    default:
      throw Error(ErrorCode::kUnsupported,
                  StrCat("floats cannot be rounded to dtype ", DTypeName(dtype),
                         "; use f64, f32, f16 or bf16"));
  }
}

}  // namespace muonstore
