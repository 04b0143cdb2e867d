// Real files cut short, with bytes changed, and with bits flipped.

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/torchfile/tensor_paths.h"
#include "formats/torchfile/torch_file.h"
#include "tests/testutil/fixtures.h"
#include "tests/torchfile/check_input.h"
#include "tests/torchfile/expect_error.h"
#include "tests/torchfile/memory_file_system.h"
#include "tests/torchfile/pickle_builder.h"
#include "tests/torchfile/zip_builder.h"

namespace muonstore::torchfile {
namespace {

namespace fs = std::filesystem;

std::string Fixture(const std::string& name) {
  return ReadFileBytes(
      (testutil::RepositoryData() / "torchfiles" / name).string());
}

// Files that load, and the raw inputs that do not.
std::vector<fs::path> AllFiles() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(
           testutil::RepositoryData() / "torchfiles")) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".pt" || extension == ".pkl" || extension == ".bin") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

using Tensors = std::map<std::string, std::string>;

Tensors TensorsOf(const TorchFile& file) {
  Tensors tensors;
  VisitTensors(file.tree(),
               [&](const std::string& path, const TensorInfo& tensor) {
                 tensors[path] = ReadAll(file, tensor);
               });
  return tensors;
}

TEST(Damage, CutAtEachByte) {
  for (const char* name : {"plain.pt", "legacy.pt", "crafted_unaligned.pt"}) {
    const std::string bytes = Fixture(name);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_THROW(OpenBytes(bytes.substr(0, size)), Error)
          << name << " cut at " << size;
    }
  }
}

TEST(Damage, CutAtEachSixtyFourth) {
  int num_files = 0;
  for (const fs::path& path : AllFiles()) {
    const std::string bytes = ReadFileBytes(path.string());
    if (!CheckFile(bytes)) {
      continue;
    }
    ++num_files;
    for (size_t part = 0; part < 64; ++part) {
      const std::string cut = bytes.substr(0, bytes.size() * part / 64);
      EXPECT_THROW(OpenBytes(cut), Error) << path << " cut at " << part;
    }
  }
  EXPECT_GT(num_files, 30);
}

// A flipped bit anywhere is an error, a fault of Verify, or without effect.
TEST(Damage, EachFlippedBitIsFoundOrHarmless) {
  for (const char* name : {"plain.pt", "crafted_unaligned.pt"}) {
    const std::string bytes = Fixture(name);
    const Tensors expected = TensorsOf(*OpenBytes(bytes));
    int found = 0;
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string flipped = bytes;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
      try {
        const auto file = OpenBytes(flipped);
        if (!file->Verify().empty()) {
          ++found;
          continue;
        }
        EXPECT_EQ(TensorsOf(*file), expected) << name << " bit " << bit;
      } catch (const Error&) {
        ++found;
      }
    }
    EXPECT_GT(found, static_cast<int>(2 * bytes.size()));
  }
}

TEST(Damage, VerifyNamesRecordStorageAndTensors) {
  auto records = TorchRecords(
      pickle::Whole(pickle::Dict(
          {{"w", pickle::Tensor()},
           {"view", pickle::Tensor({.size = {6}, .stride = {1}})},
           {"other",
            pickle::Tensor({.storage = pickle::Storage({.key = "1"})})}})),
      {pickle::Floats(6), pickle::Floats(6, 10)});
  for (ZipRecord& record : records) {
    record.has_descriptor = true;
  }
  const std::string sound = BuildZip(records);
  uint64_t done = 0;
  EXPECT_TRUE(
      OpenBytes(sound)->Verify([&](uint64_t bytes) { done = bytes; }).empty());
  EXPECT_GT(done, 48u);

  std::string damaged = sound;
  const size_t payload = sound.find(pickle::Floats(6));
  damaged[payload + 5] ^= 1;
  const size_t descriptor = sound.find(pickle::Floats(6, 10)) + 24;
  damaged[descriptor + 8] ^= 1;
  const std::vector<Error> faults = OpenBytes(damaged)->Verify();
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_EQ(faults[0].code(), ErrorCode::kDataLoss);
  EXPECT_EQ(faults[0].place().file, "memory.pt");
  EXPECT_EQ(faults[0].place().tensor, "/w, /view");
  EXPECT_EQ(faults[0].place().offset_bytes, payload);
  EXPECT_THAT(faults[0].what(), testing::HasSubstr("data/0 is damaged"));
  EXPECT_EQ(faults[1].place().tensor, "/other");
  EXPECT_THAT(faults[1].what(), testing::HasSubstr("data descriptor"));
}

// Thousands of changes to real files: an error or a result, never a crash, and
// never a read outside of the file.
TEST(Damage, MutatedFiles) {
  std::mt19937 random(20260701);
  for (const fs::path& path : AllFiles()) {
    const std::string bytes = ReadFileBytes(path.string());
    if (bytes.empty() || bytes.size() > 20000) {
      continue;
    }
    SCOPED_TRACE(path.string());
    for (int round = 0; round < 40; ++round) {
      std::string mutated = bytes;
      for (uint32_t change = 0; change <= random() % 4; ++change) {
        mutated[random() % mutated.size()] = static_cast<char>(random());
      }
      EXPECT_NO_THROW(CheckFile(mutated));
    }
  }
}

// The pickles alone, so that no checksum catches the change.
TEST(Damage, MutatedPickles) {
  std::mt19937 random(20260702);
  int num_opened = 0;
  for (const fs::path& path : AllFiles()) {
    std::string pickle;
    try {
      const std::string bytes = ReadFileBytes(path.string());
      const auto file = OpenBytes(bytes);
      for (const RecordInfo& record : file->records()) {
        if (record.name == "data.pkl") {
          pickle = bytes.substr(record.offset_bytes, record.size_bytes);
        }
      }
    } catch (const Error&) {
      continue;
    }
    if (pickle.empty() || pickle.size() > 20000) {
      continue;
    }
    SCOPED_TRACE(path.string());
    for (int round = 0; round < 150; ++round) {
      std::string mutated = pickle;
      for (uint32_t change = 0; change <= random() % 3; ++change) {
        const size_t at = random() % mutated.size();
        switch (random() % 3) {
          case 0:
            mutated[at] = static_cast<char>(random());
            break;
          case 1:
            mutated.erase(at, 1);
            mutated += '.';
            break;
          default:
            mutated.insert(at, mutated.substr(random() % mutated.size(), 9));
        }
      }
      EXPECT_NO_THROW(num_opened += CheckPickle(mutated) ? 1 : 0);
    }
  }
  EXPECT_GT(num_opened, 0);
}

// The corpus of the fuzzer, without the fuzzer.
TEST(Damage, FuzzCorpus) {
  size_t num_inputs = 0;
  for (const fs::path& path : AllFiles()) {
    const std::string bytes = ReadFileBytes(path.string());
    EXPECT_NO_THROW(CheckFile(bytes)) << path;
    EXPECT_NO_THROW(CheckPickle(bytes)) << path;
    ++num_inputs;
  }
  EXPECT_GE(num_inputs, 110u);
}

}  // namespace
}  // namespace muonstore::torchfile
