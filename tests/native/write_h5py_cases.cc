// Writes native checkpoints and, beside each, what their source held, for
// h5py_test.py: write_h5py_cases DIRECTORY FIRST_SEED COUNT ZSTD_LEVEL
#include <cstdio>
#include <exception>
#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "formats/native/checkpoint.h"
#include "src/base/str.h"
#include "tests/native/random_checkpoint.h"
#include "tests/native/save.h"
#include "tests/testutil/scratch.h"

namespace muonstore::native {
namespace {

std::string Hex(std::string_view bytes) {
  std::string text = "x";
  for (const char c : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

template <typename T, typename Each>
std::string List(const T& items, const Each& each) {
  std::string text;
  for (const auto& item : items) {
    text += (text.empty() ? "" : ",") + each(item);
  }
  return text.empty() ? "-" : text;
}

// One line a tensor: name, kind, dtype, shape, file of its bytes, places.
std::string Line(const Checkpoint& source, const Checkpoint& saved, size_t i,
                 const std::string& file) {
  const CheckpointTensor& tensor = source.tensors()[i];
  const size_t j = FindTensor(saved, tensor.key).value();
  const std::string shape =
      List(tensor.shape.dims(), [](int64_t dim) { return StrCat(dim); });
  const std::string places =
      List(saved.fragments(j), [&](const Fragment& fragment) {
        const auto segment = static_cast<size_t>(fragment.segment);
        return StrCat(fragment.tensor_offset, ":",
                      fragment.tensor_offset + fragment.length, ":",
                      saved.segments()[segment].rank);
      });
  const std::string missing =
      List(tensor.missing, [](const ElementRange& range) {
        return StrCat(range.begin, ":", range.end);
      });
  return StrCat(Hex(tensor.key.parameter), " ", Hex(tensor.key.kind), " ",
                DTypeName(tensor.dtype), " ", shape, " ", file, " ", places,
                " ", missing, "\n");
}

void WriteCase(const std::filesystem::path& folder, uint32_t seed, int level) {
  std::mt19937 random(seed);
  const auto source = RandomCheckpoint(random);
  const ZeroRule rule = RandomRule(random);
  const std::string path =
      Save(PosixFileSystem(), folder.string(),
           {.tag = "tag", .zstd_level = level, .block_bytes = 4096}, *source,
           LayoutOf(*source, rule));
  const auto saved =
      NativeCheckpoint::Open(PosixFileSystem(), path, {.allow_loss = true});
  std::string lines;
  for (size_t i = 0; i < source->tensors().size(); ++i) {
    const CheckpointTensor& tensor = source->tensors()[i];
    if (tensor.derived) {
      continue;
    }
    // Read around ReadTensor, which refuses missing elements.
    source->mutable_tensor(i).missing.clear();
    std::string bytes(static_cast<size_t>(tensor.shape.num_elements() *
                                          SizeBytes(tensor.dtype)),
                      '\0');
    ReadTensor(*source, i, {0, tensor.shape.num_elements()},
               std::as_writable_bytes(std::span(bytes)));
    const std::string file = StrCat("t", i, ".bin");
    testutil::WriteBytes(folder / file, bytes);
    source->mutable_tensor(i).missing =
        saved->tensors()[FindTensor(*saved, tensor.key).value()].missing;
    lines += Line(*source, *saved, i, file);
  }
  testutil::WriteBytes(folder / "expected.txt", lines);
}

int Run(const std::vector<std::string>& args) {
  if (args.size() != 5) {
    std::fputs("write_h5py_cases DIRECTORY FIRST_SEED COUNT ZSTD_LEVEL\n",
               stderr);
    return 2;
  }
  const auto first = static_cast<uint32_t>(std::stoul(args[2]));
  const auto count = static_cast<uint32_t>(std::stoul(args[3]));
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const std::filesystem::path folder =
        std::filesystem::path(args[1]) / std::to_string(seed);
    std::filesystem::create_directories(folder);
    WriteCase(folder, seed, std::stoi(args[4]));
  }
  return 0;
}

}  // namespace
}  // namespace muonstore::native

int main(int argc, char** argv) {
  try {
    return muonstore::native::Run(std::vector<std::string>(argv, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
