// Whole exports of real checkpoints, read back and compared with the source.
#include "formats/safetensors/sink.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verify_target.h"
#include "muonstore/convert.h"
#include "muonstore/open.h"
#include "src/os/output_root.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/golden.h"
#include "tests/testutil/scratch.h"

namespace muonstore::safetensors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testutil::Scratch;

std::unique_ptr<Checkpoint> OpenCase(const std::string& name) {
  const auto root = testutil::FindDeepSpeedCase(name).folder / "ckpt";
  return OpenCheckpoint(PosixFileSystem(), root.string());
}

std::vector<std::string> Names(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class SinkTest : public testing::Test {
 protected:
  void Export(const Checkpoint& source, const ExportOptions& options,
              bool verify = true) {
    os::OutputRoot root(PosixFileSystem(), (scratch_ / "out").string());
    SafetensorsSink sink(source, root, "tag", /*overwrite=*/true, options);
    const ConversionPlan plan = PlanConversion(source, sink);
    Convert(source, sink, plan,
            {.jobs = 2, .before_commit = [&](auto /*found*/) {
               if (!verify) return;
               VerifyTarget(source, sink, plan, {.jobs = 2});
             }});
  }

  Scratch scratch_;
};

TEST_F(SinkTest, MastersOfAnyCutAreTheGoldenValues) {
  for (const std::string name :
       {"s2-ws2-bf16-none-base", "s3-ws2-bf16-none-zinit",
        "s1-ws2-bf16-none-gacc32", "s3-ws2-bf16-nvme-swapall"}) {
    const auto source = OpenCase(name);
    Export(*source, {.state = "master"});
    const auto file = PosixFileSystem()->OpenForRead(
        (scratch_ / "out/tag/model.safetensors").string());
    const Header header = ReadHeader(*file);
    const testutil::Golden golden = testutil::ReadGolden(
        testutil::FindDeepSpeedCase(name).folder / "golden.h5");
    size_t num_checked = 0;
    for (const TensorEntry& entry : header.entries) {
      const auto want = golden.find("fp32/" + entry.name);
      if (want == golden.end()) continue;
      std::vector<float> values(want->second.floats.size());
      file->ReadAt(header.data_offset_bytes + entry.begin_bytes,
                   std::as_writable_bytes(std::span(values)));
      EXPECT_EQ(values, want->second.floats) << name << " " << entry.name;
      EXPECT_EQ(entry.shape.dims(), want->second.shape);
      ++num_checked;
    }
    EXPECT_EQ(num_checked, 25U) << name;
  }
}

TEST_F(SinkTest, ShardsAppearTogether) {
  Export(*OpenCase("s2-ws2-bf16-none-base"), {.max_shard_bytes = 9000});
  EXPECT_THAT(Names(scratch_ / "out/tag"),
              ElementsAre("model-00001-of-00004.safetensors",
                          "model-00002-of-00004.safetensors",
                          "model-00003-of-00004.safetensors",
                          "model-00004-of-00004.safetensors",
                          "model.safetensors.index.json"));
}

TEST_F(SinkTest, WithoutCommitThereIsNothing) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  {
    os::OutputRoot root(PosixFileSystem(), (scratch_ / "out").string());
    SafetensorsSink sink(*source, root, "tag", false, {});
    const auto file = sink.CreateFile(0);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out"));
}

// The file of that name, in whichever folder it waits for the commit.
std::filesystem::path FindFile(const std::filesystem::path& root,
                               const std::string& name) {
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root)) {
    if (entry.path().filename() == name) return entry.path();
  }
  return {};
}

TEST_F(SinkTest, VerifyFindsAFlippedBit) {
  const auto source = OpenCase("s2-ws2-bf16-none-base");
  os::OutputRoot root(PosixFileSystem(), (scratch_ / "out").string());
  SafetensorsSink sink(*source, root, "tag", false, {});
  const ConversionPlan plan = PlanConversion(*source, sink);
  const auto error = ErrorOf([&] {
    Convert(*source, sink, plan, {.before_commit = [&](auto /*found*/) {
      const auto path = FindFile(scratch_ / "out", "model.safetensors");
      std::string bytes = testutil::ReadBytes(path);
      bytes[bytes.size() - 7] ^= 4;
      testutil::WriteBytes(path, bytes);
      VerifyTarget(*source, sink, plan, {});
    }});
  });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
  EXPECT_THAT(error->message(), HasSubstr("differs from the source"));
  EXPECT_FALSE(error->place().tensor.empty());
}

}  // namespace
}  // namespace muonstore::safetensors
