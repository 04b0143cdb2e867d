// Writes exports of a checkpoint of many shapes and dtypes, for oracle_test.py:
//
//     write_cases FOLDER      FOLDER/all, FOLDER/sharded, FOLDER/bf16, ...
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "formats/safetensors/sink.h"
#include "muonstore/convert.h"
#include "src/os/output_root.h"
#include "tests/testutil/memory_checkpoint.h"

namespace muonstore {
namespace {

using testutil::MemoryCheckpoint;

constexpr DType kDTypes[] = {
    DType::kF64,       DType::kF32,        DType::kF16,
    DType::kBF16,      DType::kF8E4M3FN,   DType::kF8E5M2,
    DType::kI64,       DType::kI32,        DType::kI16,
    DType::kI8,        DType::kU64,        DType::kU32,
    DType::kU16,       DType::kU8,         DType::kBool,
    DType::kC64,       DType::kF8E4M3FNUZ, DType::kF8E5M2FNUZ,
    DType::kF8E8M0FNU, DType::kF4E2M1FNx2};

// Bytes 0, 1, 2, ... or, for bools, 0 and 1 in turn.
std::vector<std::byte> Bytes(DType dtype, int64_t count, int64_t seed) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * SizeBytes(dtype)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto value = static_cast<int64_t>(i) + seed;
    bytes[i] =
        static_cast<std::byte>(dtype == DType::kBool ? value % 2 : value % 251);
  }
  return bytes;
}

void Add(MemoryCheckpoint& source, const std::string& name, DType dtype,
         const std::vector<int64_t>& shape) {
  const auto tensor = static_cast<int64_t>(source.tensors().size());
  const int64_t count = Shape(shape).num_elements();
  source.Add({.parameter = name,
              .kind = "weight",
              .shape = shape,
              .dtype = dtype,
              .group = -1,
              .num_pieces = static_cast<int32_t>(1 + tensor % 3)},
             Bytes(dtype, count, tensor));
  source.mutable_info().module_order.push_back(name);
}

void FillAll(MemoryCheckpoint& source) {
  for (const DType dtype : kDTypes) {
    const std::string name(DTypeName(dtype));
    Add(source, "layers.10." + name, dtype, {3, 4});
    Add(source, "layers.9." + name, dtype, {5});
  }
  Add(source, "scalar", DType::kF32, {});
  Add(source, "empty", DType::kF32, {0, 7});
  Add(source, "\xC3\xA9 \"quoted\" \\ \n \x01 \x7F \xF0\x9F\x98\x80 /",
      DType::kI32, {2});
}

void FillFloats(MemoryCheckpoint& source) {
  for (int64_t i = 0; i < 40; ++i) {
    Add(source, "h." + std::to_string(i) + ".w", DType::kF32, {i + 1, 3});
  }
}

void Export(const MemoryCheckpoint& source, const std::string& root,
            const std::string& tag, const safetensors::ExportOptions& options) {
  os::OutputRoot output(PosixFileSystem(), root);
  safetensors::SafetensorsSink sink(source, output, tag, false, options);
  Convert(source, sink, PlanConversion(source, sink), {});
}

}  // namespace
}  // namespace muonstore

int main(int argc, char** argv) {
  using namespace muonstore;  // NOLINT(google-build-using-namespace)
  if (argc != 2) return 2;
  const std::string root = argv[1];
  MemoryCheckpoint all;
  FillAll(all);
  Export(all, root, "all", {});
  MemoryCheckpoint floats;
  FillFloats(floats);
  Export(floats, root, "sharded", {.max_shard_bytes = 1000});
  Export(floats, root, "bf16", {.dtype = DType::kBF16});
  return 0;
}
