#include "examples/train_gpt/text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include <ATen/ops/empty.h>

namespace train_gpt {
namespace {

namespace fs = std::filesystem;

constexpr char kLicences[] = "/usr/share/common-licenses";

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// By name, each once: the folder also has links from one to another.
std::vector<fs::path> LicenceFiles() {
  std::vector<fs::path> files;
  if (fs::is_directory(kLicences)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(kLicences)) {
      if (!entry.is_symlink() && entry.is_regular_file()) {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// splitmix64: a number that depends on every bit of its argument.
uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30u)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27u)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31u);
}

}  // namespace

std::string ReadText(const std::string& file) {
  if (!file.empty()) return ReadFile(file);
  std::string text;
  for (const fs::path& path : LicenceFiles()) text += ReadFile(path);
  if (text.empty()) {
    throw std::runtime_error(std::string("no text in ") + kLicences +
                             ": name a file with --text");
  }
  return text;
}

at::Tensor Samples(const std::string& text, uint64_t seed, int64_t length,
                   const SampleRange& range) {
  if (std::ssize(text) < length) {
    throw std::runtime_error("the text is shorter than one sample");
  }
  const uint64_t num_starts = text.size() - static_cast<uint64_t>(length) + 1;
  at::Tensor samples = at::empty({range.count, length}, at::kLong);
  int64_t* out = samples.data_ptr<int64_t>();
  for (int64_t i = range.first; i < range.first + range.count; ++i) {
    const uint64_t start =
        Mix(Mix(Mix(seed) + static_cast<uint64_t>(range.step)) +
            static_cast<uint64_t>(i)) %
        num_starts;
    out =
        std::transform(text.begin() + static_cast<int64_t>(start),
                       text.begin() + static_cast<int64_t>(start) + length, out,
                       [](char c) { return static_cast<unsigned char>(c); });
  }
  return samples;
}

}  // namespace train_gpt
