#include "converters/fingerprinted_sink.h"

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/convert.h"
#include "nlohmann/json.hpp"
#include "src/os/output_root.h"
#include "tests/testutil/memory_checkpoint.h"
#include "tests/testutil/memory_sink.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testutil::MemoryCheckpoint;
using testutil::MemorySink;
using testutil::ReadBytes;
using testutil::Scratch;
using testutil::WriteBytes;

// Refuses to become visible.
class FailingSink final : public CheckpointSink {
 public:
  std::string path() const override { return "x"; }
  size_t num_files() const override { return 0; }
  std::vector<SinkSegment> PlanFile(size_t /*file*/) const override {
    return {};
  }
  std::span<const SinkLoss> losses() const override { return losses_; }
  std::span<const std::string> notes() const override { return {}; }
  std::unique_ptr<SinkFile> CreateFile(size_t /*file*/) override {
    return nullptr;
  }
  void Finish() override {}
  std::shared_ptr<FileSystem> Preview() const override { return nullptr; }
  void Commit() override {
    throw Error(ErrorCode::kResourceExhausted, "no space");
  }

 private:
  std::vector<SinkLoss> losses_ = {{.kind = "all", .tensors = {0}}};
};

class FingerprintedSinkTest : public testing::Test {
 protected:
  FingerprintedSinkTest() : root_(PosixFileSystem(), scratch_.path()) {
    std::vector<float> values(10);
    std::iota(values.begin(), values.end(), 1.0F);
    source_.Add({.parameter = "w", .kind = "master", .shape = {10}}, values);
  }

  Scratch scratch_;
  os::OutputRoot root_;
  MemoryCheckpoint source_;
};

TEST_F(FingerprintedSinkTest, PassesEveryByteOnAndLeavesAFingerprint) {
  WriteBytes(scratch_ / "step5.fingerprint.json", "of another state");
  auto memory = std::make_unique<MemorySink>(std::vector<MemorySink::FilePlan>{
      {{.num_elements = 6, .pieces = {{0, 0, 1, 5}}}},
      {{.num_elements = 5, .pieces = {{0, 5, 0, 5}}}}});
  const MemorySink& seen = *memory;
  FingerprintedSink sink(std::move(memory), source_, root_, "step5", true);
  Convert(source_, sink, PlanConversion(source_, sink), {});
  EXPECT_TRUE(seen.committed());
  EXPECT_EQ(seen.Floats(0, 0), (std::vector<float>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(seen.Floats(1, 0), (std::vector<float>{6, 7, 8, 9, 10}));
  const auto json =
      nlohmann::json::parse(ReadBytes(scratch_ / "step5.fingerprint.json"));
  // python3 -c 'import zlib, struct;
  //   print(f"{zlib.crc32(struct.pack("<10f", *range(1, 11))):08x}")'
  EXPECT_EQ(json["parameters"][0]["master"], "af49a058");
}

TEST_F(FingerprintedSinkTest, ATagThatDidNotComeLeavesTheFingerprintBefore) {
  const auto path = scratch_ / "step5.fingerprint.json";
  WriteBytes(path, "of another state");
  FingerprintedSink sink(std::make_unique<FailingSink>(), source_, root_,
                         "step5", true);
  EXPECT_THROW(sink.Commit(), Error);
  EXPECT_EQ(ReadBytes(path), "of another state");
  std::filesystem::remove(path);
  FingerprintedSink first(std::make_unique<FailingSink>(), source_, root_,
                          "step5", true);
  EXPECT_THROW(first.Commit(), Error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(FingerprintName, IsTheTagsWithASuffix) {
  EXPECT_EQ(FingerprintName("step5"), "step5.fingerprint.json");
  EXPECT_TRUE(IsFingerprintName("step5.fingerprint.json"));
  EXPECT_FALSE(IsFingerprintName("zero_to_fp32.py"));
}

}  // namespace
}  // namespace muonstore
