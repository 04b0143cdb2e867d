// A target that is not what its source is, found and named.
#include "converters/verify_target.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/make_sink.h"
#include "converters/target_layout.h"
#include "muonstore/open.h"
#include "src/os/output_root.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/fixtures.h"
#include "tests/testutil/memory_checkpoint.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using testing::HasSubstr;

class VerifyTargetTest : public testing::TestWithParam<TargetFormat> {
 protected:
  VerifyTargetTest()
      : source_(OpenCheckpoint(
            PosixFileSystem(),
            (testutil::FindDeepSpeedCase("s2-ws2-bf16-none-base").folder /
             "ckpt")
                .string())),
        layout_(ChooseLayout(*source_, {}).layout),
        root_(PosixFileSystem(), (scratch_ / "out").string()),
        sink_(MakeSink(*source_, layout_, root_,
                       {.format = GetParam(), .tag = "tag"})),
        plan_(PlanConversion(*source_, *sink_)) {}

  // What a comparison with `source` says before the commit, after `tamper` was
  // at the files.
  std::optional<Error> Verify(
      const Checkpoint& source, const std::function<void()>& tamper = [] {}) {
    return ErrorOf([&] {
      Convert(*source_, *sink_, plan_, {.before_commit = [&](auto /*found*/) {
        tamper();
        VerifyTarget(source, *sink_, plan_, {.jobs = 2});
      }});
    });
  }

  // Of all files, in whichever folder they wait, without the view.
  void FlipABitInTheLargestFile() const {
    std::filesystem::path largest;
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(scratch_ / "out")) {
      const std::string name = entry.path().filename().string();
      if (entry.is_regular_file() && !name.starts_with("checkpoint.") &&
          (largest.empty() || entry.file_size() > file_size(largest))) {
        largest = entry.path();
      }
    }
    std::string bytes = testutil::ReadBytes(largest);
    bytes[bytes.size() / 2] ^= 1;
    testutil::WriteBytes(largest, bytes);
  }

  testutil::Scratch scratch_;
  std::unique_ptr<Checkpoint> source_;
  TargetLayout layout_;
  os::OutputRoot root_;
  std::unique_ptr<CheckpointSink> sink_;
  ConversionPlan plan_;
};

TEST_P(VerifyTargetTest, AGoodTarget) {
  const auto error = Verify(*source_);
  EXPECT_FALSE(error.has_value()) << error->what();
}

TEST_P(VerifyTargetTest, AFlippedBitInTheLargestFile) {
  const auto error = Verify(*source_, [&] { FlipABitInTheLargestFile(); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
}

// It is compared before it is visible: nothing of a bad target is ever seen.
TEST_P(VerifyTargetTest, ABadTargetDoesNotAppear) {
  Verify(*source_, [&] { FlipABitInTheLargestFile(); });
  sink_.reset();
  EXPECT_FALSE(std::filesystem::exists(scratch_ / "out/tag"));
}

// The same tensors with one other value, as if the wrong source was read.
TEST_P(VerifyTargetTest, AnotherValueIsNamed) {
  testutil::MemoryCheckpoint other;
  for (size_t t = 0; t < source_->tensors().size(); ++t) {
    const CheckpointTensor& tensor = source_->tensors()[t];
    const int64_t count = tensor.shape.num_elements();
    std::vector<std::byte> bytes(
        static_cast<size_t>(count * SizeBytes(tensor.dtype)));
    ReadTensor(*source_, t, {0, count}, bytes);
    const bool is_changed = tensor.key.ToString() == "odd.weight/weight";
    if (is_changed) bytes[2 * 17] ^= std::byte{1};
    other.Add({.parameter = tensor.key.parameter,
               .kind = tensor.key.kind,
               .shape = tensor.shape.dims(),
               .dtype = tensor.dtype,
               .group = tensor.group},
              bytes);
  }
  const auto error = Verify(other);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->place().tensor, "odd.weight/weight");
  EXPECT_THAT(error->message(), HasSubstr("element 17 differs"));
}

INSTANTIATE_TEST_SUITE_P(Formats, VerifyTargetTest,
                         testing::Values(TargetFormat::kNative,
                                         TargetFormat::kDeepSpeed,
                                         TargetFormat::kSafetensors),
                         [](const auto& one) {
                           return std::string(TargetFormatName(one.param));
                         });

}  // namespace
}  // namespace muonstore
