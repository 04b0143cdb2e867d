#include "src/kernel/accumulate.h"

#include <cstring>

#include "muonstore/error.h"
#include "src/base/str.h"
#include "src/kernel/simd.h"
#include "src/tensor/float_bits.h"
#include "src/tensor/training_dtype.h"

namespace muonstore {
namespace {

template <typename Stored, typename Widen>
MUONSTORE_INLINE void AddLoop(const std::byte* __restrict chunk,
                              float* __restrict accumulator, size_t count,
                              Widen widen) {
  for (size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, chunk + i * sizeof(Stored), sizeof(Stored));
    accumulator[i] += widen(stored);
  }
}

MUONSTORE_SIMD
void Add(DType dtype, const std::byte* chunk, float* accumulator,
         size_t count) {
  switch (dtype) {
    case DType::kF32:
      return AddLoop<float>(chunk, accumulator, count,
                            [](float value) { return value; });
    case DType::kBF16:
      return AddLoop<uint16_t>(chunk, accumulator, count, FloatFromBF16);
    default:
      return AddLoop<uint16_t>(chunk, accumulator, count, FloatFromF16);
  }
}

void CheckChunk(DType dtype, size_t chunk_bytes, size_t num_elements) {
  RequireTrainingDType(dtype, ErrorCode::kUnsupported,
                       "gradients of this dtype cannot be accumulated");
  const auto size = static_cast<size_t>(SizeBytes(dtype));
  if (chunk_bytes / size != num_elements || chunk_bytes % size != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "a gradient chunk does not fit its accumulator",
                {.expected = StrCat(num_elements, " * ", size, " bytes"),
                 .found = StrCat(chunk_bytes, " bytes")});
  }
}

}  // namespace

void AccumulateGradient(DType dtype, std::span<const std::byte> chunk,
                        AccumulateMode mode, std::span<float> accumulator) {
  CheckChunk(dtype, chunk.size(), accumulator.size());
  if (mode == AccumulateMode::kSet) {
    ConvertToF32(dtype, chunk, accumulator);
  } else {
    Add(dtype, chunk.data(), accumulator.data(), accumulator.size());
  }
}

}  // namespace muonstore
