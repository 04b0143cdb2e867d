// Element types of stored tensors, and exact conversions between them.
//
// What: `DType` names every element type that torch.save, safetensors and HDF5
//   files of the field contain. All data is little-endian.
// Ownership: the conversions write to spans that the caller owns; input and
//   output must not overlap. Bytes need no alignment.
// Threads: pure functions, safe everywhere.
// Failures: Error(kInvalidArgument) when span sizes do not fit;
//   Error(kUnsupported) for a dtype without a meaning as real numbers.

#ifndef MUONSTORE_DTYPE_H_
#define MUONSTORE_DTYPE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace muonstore {

enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kF8E4M3FN,
  kF8E4M3FNUZ,
  kF8E5M2,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kF4E2M1FNx2,  // Two 4-bit values in one byte; kept, never converted.
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kC128,  // Complex of two f64.
  kC64,
  kC32,  // Complex of two f16.
};

// Bytes of one element.
int64_t SizeBytes(DType dtype);

// The short name used in output and native files: "f32", "bf16", "f8_e4m3fn".
std::string_view DTypeName(DType dtype);

// torch's name without its module: "float32", "bfloat16".
std::string_view TorchDTypeName(DType dtype);

// Accepts the short name and torch's ("float32", "bfloat16", "torch.half").
std::optional<DType> ParseDType(std::string_view name);

bool IsFloatingPoint(DType dtype);  // Real floating point, f4 excluded.
bool IsComplex(DType dtype);

// Widens `in` (packed elements of `dtype`) to doubles. Exact for every real
// dtype except 64-bit integers beyond 2^53 (rounded to nearest).
void ConvertToF64(DType dtype, std::span<const std::byte> in,
                  std::span<double> out);

// Widens `in` to floats: exact for f32, f16, bf16, f8 and integers up to 24
// bits; f64 and wider integers are rounded to nearest even.
void ConvertToF32(DType dtype, std::span<const std::byte> in,
                  std::span<float> out);

// Rounds floats to `dtype` (f64, f32, f16 or bf16), to nearest even as IEEE 754
// and torch do; a NaN stays a NaN, overflow gives infinity.
void ConvertFromF32(std::span<const float> in, DType dtype,
                    std::span<std::byte> out);

}  // namespace muonstore

#endif  // MUONSTORE_DTYPE_H_
