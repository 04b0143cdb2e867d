// The engine: every element arrives, in the right dtype, in blocks, or there is
// a clear error and no target.
#include "muonstore/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/partition/random_model.h"
#include "tests/tensor/error_of.h"
#include "tests/testutil/forwarding_file_system.h"
#include "tests/testutil/memory_checkpoint.h"
#include "tests/testutil/memory_sink.h"

namespace muonstore {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testutil::MemoryCheckpoint;
using testutil::MemorySink;
using testutil::UniqueValues;

constexpr uint64_t kMiB = 1 << 20;

SinkSegment Whole(const Checkpoint& source, size_t tensor, DType dtype) {
  const int64_t count = source.tensors()[tensor].shape.num_elements();
  return {.name = "segment",
          .dtype = dtype,
          .num_elements = count,
          .pieces = {{.tensor = tensor, .length = count}}};
}

void RunConversion(const Checkpoint& source, MemorySink& sink,
                   const ConvertOptions& options = {}) {
  Convert(source, sink, PlanConversion(source, sink), options);
}

// One tensor as one segment of the given dtype.
std::vector<float> Converted(const MemoryCheckpoint& source, DType dtype,
                             double scale = 1) {
  SinkSegment segment = Whole(source, 0, dtype);
  segment.scale = scale;
  MemorySink sink({{segment}});
  RunConversion(source, sink, {.allowed_losses = {kOverflowLoss}});
  EXPECT_TRUE(sink.committed());
  return sink.Floats(0, 0);
}

// Source tensors cut over ranks, as random pieces of random segments.
struct RandomCase {
  MemoryCheckpoint source;
  std::vector<MemorySink::FilePlan> files;
  // By file and segment: the expected value of each element.
  std::vector<std::vector<std::vector<float>>> want;
};

void AddTensors(Random& random, RandomCase& c) {
  for (int64_t t = random.Pick(1, 6); t > 0; --t) {
    const int64_t count = random.Pick(1, 60'000);
    c.source.Add({.parameter = "p" + std::to_string(t),
                  .shape = {count},
                  .num_pieces = static_cast<int32_t>(random.Pick(1, 5))},
                 UniqueValues(count, static_cast<float>(t)));
  }
}

void AddPieces(Random& random, RandomCase& c, size_t tensor) {
  const int64_t count = c.source.tensors()[tensor].shape.num_elements();
  const auto scale =
      static_cast<float>(c.source.tensors()[tensor].key.parameter.back() - '0');
  for (int64_t at = 0; at < count;) {
    const int64_t length = std::min(count - at, random.Pick(1, 30'000));
    const auto file = static_cast<size_t>(random.Pick(0, 2));
    const auto segment = static_cast<size_t>(random.Pick(0, 1));
    SinkSegment& to = c.files[file][segment];
    std::vector<float>& want = c.want[file][segment];
    const int64_t gap = random.Chance(50) ? 0 : random.Pick(1, 5000);
    want.resize(want.size() + static_cast<size_t>(gap), 0.0F);
    to.pieces.push_back({.tensor = tensor,
                         .tensor_offset = at,
                         .segment_offset = static_cast<int64_t>(want.size()),
                         .length = length});
    for (int64_t i = 0; i < length; ++i) {
      want.push_back(scale * static_cast<float>(at + i + 1));
    }
    at += length;
  }
}

void FillCase(Random& random, RandomCase& c) {
  AddTensors(random, c);
  c.files.assign(3, MemorySink::FilePlan(2));
  c.want.assign(3, std::vector<std::vector<float>>(2));
  for (size_t t = 0; t < c.source.tensors().size(); ++t) {
    AddPieces(random, c, t);
  }
  for (size_t f = 0; f < 3; ++f) {
    for (size_t s = 0; s < 2; ++s) {
      c.want[f][s].resize(c.want[f][s].size() +
                          static_cast<size_t>(random.Pick(0, 9)));
      c.files[f][s].num_elements = static_cast<int64_t>(c.want[f][s].size());
    }
  }
}

TEST(ConvertTest, EveryElementArrivesWhateverTheCut) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    RandomCase c;
    FillCase(random, c);
    MemorySink sink(c.files);
    // About a hundred KiB a block: most segments take several.
    RunConversion(c.source, sink,
                  {.memory_limit_bytes = kMiB * 2,
                   .jobs = static_cast<int32_t>(random.Pick(1, 4))});
    ASSERT_TRUE(sink.committed());
    EXPECT_LE(sink.largest_append(), kMiB);
    for (size_t f = 0; f < 3; ++f) {
      for (size_t s = 0; s < 2; ++s) {
        ASSERT_EQ(sink.Floats(f, s), c.want[f][s])
            << "seed " << seed << ", file " << f << ", segment " << s;
      }
    }
  }
}

TEST(ConvertTest, BitsAreKeptWhereTheDTypeIs) {
  // A signalling NaN, -0, a denormal: nothing may be normalized.
  const std::vector<uint32_t> bits = {0x7FA00001, 0x80000000, 0x00000001};
  MemoryCheckpoint source;
  source.Add({.shape = {3}}, std::as_bytes(std::span(bits)));
  MemorySink sink({{Whole(source, 0, DType::kF32)}});
  RunConversion(source, sink);
  EXPECT_TRUE(
      std::ranges::equal(sink.contents(0, 0), std::as_bytes(std::span(bits))));
}

TEST(ConvertTest, NarrowingRoundsToNearestEvenAndWideningIsExact) {
  MemoryCheckpoint source;
  // Halfway between two bf16 values, both ways, and just above halfway.
  source.Add({.shape = {3}},
             {1.00390625F, 1.01171875F, std::nextafter(1.00390625F, 2.0F)});
  EXPECT_THAT(Converted(source, DType::kBF16),
              ElementsAre(1.0F, 1.015625F, 1.0078125F));
  MemoryCheckpoint narrow;
  narrow.Add({.shape = {2}, .dtype = DType::kBF16}, {1.0078125F, -3.0e38F});
  EXPECT_THAT(Converted(narrow, DType::kF32),
              ElementsAre(1.0078125F, std::bit_cast<float>(0xFF62'0000U)));
}

TEST(ConvertTest, DoublesAreRoundedOnce) {
  // Above half of the last place of bf16 by less than a float can tell: as a
  // float it would be halfway, and rounded down.
  const std::vector<double> values = {1.00390625 + 1e-12, 1e300, 1e-300};
  MemoryCheckpoint source;
  source.Add({.shape = {3}, .dtype = DType::kF64},
             std::as_bytes(std::span(values)));
  EXPECT_THAT(
      Converted(source, DType::kBF16),
      ElementsAre(1.0078125F, std::numeric_limits<float>::infinity(), 0.0F));
}

TEST(ConvertTest, AScaleIsAppliedBeforeRounding) {
  MemoryCheckpoint source;
  source.Add({.shape = {2}}, {3.0F, 1.01171875F});
  EXPECT_THAT(Converted(source, DType::kF32, 1.0 / 256),
              ElementsAre(3.0F / 256, 1.01171875F / 256));
  EXPECT_THAT(Converted(source, DType::kBF16, 2), ElementsAre(6.0F, 2.03125F));
}

TEST(ConvertTest, ADerivedWeightIsTheRoundedMaster) {
  MemoryCheckpoint source;
  const std::vector<float> masters = {1.00390625F, 2.0F, 1.01171875F};
  const size_t weight = source.Add(
      {.parameter = "p", .kind = "weight", .shape = {3}, .num_pieces = 2},
      masters);
  source.mutable_tensor(weight).derived = true;
  source.mutable_tensor(weight).dtype = DType::kBF16;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    MemorySink sink({{Whole(source, weight, dtype)}});
    RunConversion(source, sink);
    EXPECT_THAT(sink.Floats(0, 0), ElementsAre(1.0F, 2.0F, 1.015625F));
  }
}

TEST(ConvertTest, MissingElementsAreZerosOnlyWithLeave) {
  MemoryCheckpoint source;
  source.Add({.parameter = "p", .shape = {10}, .num_pieces = 3},
             UniqueValues(10, 1));
  source.mutable_tensor(0).missing = {{2, 4}, {7, 8}};
  MemorySink sink({{Whole(source, 0, DType::kF32)}});
  const ConversionPlan plan = PlanConversion(source, sink);
  ASSERT_THAT(plan.losses, SizeIs(1));
  EXPECT_EQ(plan.losses[0].kind, "missing");
  EXPECT_THAT(plan.losses[0].message, HasSubstr("p/momentum: 3 elements"));
  const auto error = ErrorOf([&] { Convert(source, sink, plan, {}); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kUnsupported);
  EXPECT_THAT(error->message(), HasSubstr("--allow-loss missing"));
  EXPECT_TRUE(sink.contents(0, 0).empty());
  Convert(source, sink, plan, {.allowed_losses = {"missing"}});
  EXPECT_THAT(sink.Floats(0, 0), ElementsAre(1, 2, 0, 0, 5, 6, 7, 0, 9, 10));
}

// Counts the reads that pass through.
class CountingCheckpoint final : public Checkpoint {
 public:
  explicit CountingCheckpoint(int64_t num_tensors) {
    for (int64_t i = 0; i < num_tensors; ++i) {
      CheckpointTensor tensor;
      tensor.key = {"p" + std::to_string(i), "momentum"};
      tensor.shape = Shape({3});
      tensors_.push_back(tensor);
    }
    segments_.push_back({.num_elements = 3 * num_tensors});
  }
  const CheckpointInfo& info() const override { return info_; }
  std::span<const CheckpointTensor> tensors() const override {
    return tensors_;
  }
  std::vector<Fragment> fragments(size_t tensor) const override {
    return {{.length = 3, .segment_offset = static_cast<int64_t>(tensor) * 3}};
  }
  std::span<const Segment> segments() const override { return segments_; }
  void ReadSegment(int32_t /*segment*/, int64_t first,
                   std::span<std::byte> out) const override {
    ++num_reads;
    for (size_t i = 0; i < out.size() / 4; ++i) {
      const auto value = static_cast<float>(first + static_cast<int64_t>(i));
      const auto bytes = std::as_bytes(std::span(&value, 1));
      std::copy(bytes.begin(), bytes.end(),
                out.begin() + static_cast<std::ptrdiff_t>(i * 4));
    }
  }

  mutable int num_reads = 0;

 private:
  CheckpointInfo info_;
  std::vector<CheckpointTensor> tensors_;
  std::vector<Segment> segments_;
};

TEST(ConvertTest, NeighboursInSourceAndTargetAreOneRead) {
  const CountingCheckpoint source(1000);
  SinkSegment segment{.num_elements = 3000};
  for (size_t i = 0; i < 1000; ++i) {
    segment.pieces.push_back({.tensor = i,
                              .segment_offset = static_cast<int64_t>(i) * 3,
                              .length = 3});
  }
  MemorySink sink({{segment}});
  RunConversion(source, sink);
  EXPECT_EQ(source.num_reads, 1);
  std::vector<float> want(3000);
  std::iota(want.begin(), want.end(), 0.0F);
  EXPECT_EQ(sink.Floats(0, 0), want);
}

// Two tensors of four elements: p0 = 1..4, p1 = 10..40.
class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    source_.Add({.parameter = "p0", .shape = {4}}, UniqueValues(4, 1));
    source_.Add({.parameter = "p1", .shape = {4}}, UniqueValues(4, 10));
  }

  std::string Message(const std::vector<SinkPiece>& pieces) const {
    SinkSegment segment{.name = "s", .num_elements = 8, .pieces = pieces};
    const MemorySink sink({{segment}});
    return MessageOf([&] { PlanConversion(source_, sink); });
  }

  MemoryCheckpoint source_;
};

TEST_F(PlanTest, PiecesMustNotOverlapAndMustLieInside) {
  EXPECT_THAT(Message({{0, 0, 0, 4}, {1, 0, 4, 4}}), IsEmpty());
  EXPECT_THAT(Message({{0, 0, 0, 4}, {1, 0, 3, 4}}), HasSubstr("overlap"));
  EXPECT_THAT(Message({{1, 0, 4, 4}, {0, 0, 0, 4}}), HasSubstr("overlap"));
  EXPECT_THAT(Message({{0, 0, 0, 4}, {1, 0, 5, 4}}), HasSubstr("outside"));
  EXPECT_THAT(Message({{0, 1, 0, 4}, {1, 0, 4, 4}}), HasSubstr("outside"));
  EXPECT_THAT(Message({{0, 0, 0, 0}, {1, 0, 4, 4}}), HasSubstr("no sense"));
  EXPECT_THAT(Message({{2, 0, 0, 4}}), HasSubstr("no sense"));
}

TEST_F(PlanTest, EveryElementMustBeSomewhere) {
  EXPECT_THAT(Message({{0, 0, 0, 4}, {1, 0, 4, 3}}),
              HasSubstr("element 3 is in no file"));
  EXPECT_THAT(Message({{0, 1, 0, 3}, {1, 0, 4, 4}}),
              HasSubstr("element 0 is in no file"));
  EXPECT_THAT(Message({{0, 0, 0, 1}, {0, 2, 1, 2}, {1, 0, 4, 4}}),
              HasSubstr("element 1 is in no file"));
  // Backwards, and twice: both are fine.
  EXPECT_THAT(Message({{0, 2, 0, 2}, {0, 0, 2, 2}, {1, 0, 4, 4}}), IsEmpty());
  EXPECT_THAT(Message({{0, 0, 0, 4}, {0, 0, 4, 2}}), HasSubstr("element 0"));
}

TEST_F(PlanTest, LossesAreListedAndAllowedByKind) {
  SinkSegment segment{.num_elements = 4, .pieces = {{0, 0, 0, 4}}};
  MemorySink sink({{segment}});
  sink.mutable_losses() = {
      {.kind = "momentum", .message = "no place for p1", .tensors = {1}},
      {.kind = "carried", .message = "chosen", .is_chosen = true}};
  const ConversionPlan plan = PlanConversion(source_, sink);
  EXPECT_EQ(plan.payload_bytes, 16U);
  EXPECT_THAT(plan.Refused({}), SizeIs(1));
  EXPECT_THAT(plan.Refused({"momentum"}), IsEmpty());
  EXPECT_THAT(MessageOf([&] { Convert(source_, sink, plan, {}); }),
              HasSubstr("no place for p1; --allow-loss momentum"));
  EXPECT_FALSE(sink.committed());
  Convert(source_, sink, plan, {.allowed_losses = {"momentum"}});
  EXPECT_TRUE(sink.committed());
}

TEST_F(PlanTest, AWeightIsNoLossWhileItsMasterIsThere) {
  MemoryCheckpoint source;
  source.Add({.parameter = "p", .kind = "master", .shape = {2}}, {1, 2});
  source.Add({.parameter = "p", .kind = "weight", .shape = {2}}, {1, 2});
  SinkSegment master{.num_elements = 2, .pieces = {{0, 0, 0, 2}}};
  const MemorySink sink({{master}});
  EXPECT_FALSE(ErrorOf([&] { PlanConversion(source, sink); }).has_value());
  MemorySink without(std::vector<MemorySink::FilePlan>(1));
  without.mutable_losses() = {{.kind = "master", .tensors = {0}}};
  EXPECT_EQ(CodeOf([&] { PlanConversion(source, without); }),
            ErrorCode::kInternal);
}

TEST_F(PlanTest, IntegersAreNeverRounded) {
  MemoryCheckpoint source;
  const std::vector<int64_t> values = {1, 2};
  source.Add({.shape = {2}, .dtype = DType::kI64},
             std::as_bytes(std::span(values)));
  MemorySink same({{Whole(source, 0, DType::kI64)}});
  RunConversion(source, same);
  EXPECT_TRUE(std::ranges::equal(same.contents(0, 0),
                                 std::as_bytes(std::span(values))));
  const MemorySink other({{Whole(source, 0, DType::kF32)}});
  EXPECT_EQ(CodeOf([&] { PlanConversion(source, other); }),
            ErrorCode::kUnsupported);
}

// Says how much room there is.
class FullDisk final : public testutil::ForwardingFileSystem {
 public:
  explicit FullDisk(uint64_t available)
      : ForwardingFileSystem(nullptr), available_(available) {}
  std::optional<FileStatus> Stat(const std::string& /*path*/) override {
    return FileStatus{.type = FileType::kDirectory};
  }
  uint64_t AvailableBytes(const std::string& /*path*/) override {
    return available_;
  }

 private:
  uint64_t available_;
};

TEST(ConvertTest, SpaceIsCheckedBeforeAnythingIsWritten) {
  MemoryCheckpoint source;
  source.Add({.shape = {100}}, UniqueValues(100));
  MemorySink sink({{Whole(source, 0, DType::kF32)}});
  const ConversionPlan plan = PlanConversion(source, sink);
  const auto error = ErrorOf([&] {
    Convert(source, sink, plan, {.fs = std::make_shared<FullDisk>(399)});
  });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kResourceExhausted);
  EXPECT_EQ(error->place().found, "399 bytes");
  EXPECT_TRUE(sink.contents(0, 0).empty());
  Convert(source, sink, plan, {.fs = std::make_shared<FullDisk>(kMiB)});
}

TEST(ConvertTest, TooLittleMemoryIsSaid) {
  MemoryCheckpoint source;
  source.Add({.shape = {2}}, UniqueValues(2));
  MemorySink sink({{Whole(source, 0, DType::kF32)}});
  EXPECT_EQ(CodeOf([&] {
              RunConversion(source, sink, {.memory_limit_bytes = kMiB - 1});
            }),
            ErrorCode::kInvalidArgument);
}

class StopTest : public testing::Test {
 protected:
  StopTest() {
    source_.Add({.parameter = "p", .shape = {kCount}}, UniqueValues(kCount));
    const SinkSegment segment = Whole(source_, 0, DType::kF32);
    sink_ = std::make_unique<MemorySink>(
        std::vector<MemorySink::FilePlan>(4, {segment}));
  }

  static constexpr int64_t kCount = 200'000;  // Several blocks.
  MemoryCheckpoint source_;
  std::unique_ptr<MemorySink> sink_;
};

TEST_F(StopTest, ProgressCountsUpAndMayStop) {
  std::vector<uint64_t> seen;
  ConvertOptions options{.memory_limit_bytes = kMiB, .jobs = 3};
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_EQ(total, 4U * kCount * 4);
    seen.push_back(done);
    if (seen.size() == 5) throw std::runtime_error("stop");
  };
  EXPECT_THROW(RunConversion(source_, *sink_, options), std::runtime_error);
  EXPECT_FALSE(sink_->committed());
  EXPECT_TRUE(std::ranges::is_sorted(seen));
  EXPECT_LT(seen.back(), 4U * kCount * 4);
}

// More ranks than elements: most files have nothing to tell about.
TEST(ConvertTest, AStopIsNoticedBetweenFilesWithoutElements) {
  MemoryCheckpoint source;
  source.Add({.parameter = "w", .shape = {4}}, {1, 2, 3, 4});
  std::vector<MemorySink::FilePlan> files(100);
  files[99] = {Whole(source, 0, DType::kF32)};
  MemorySink sink(files);
  int calls = 0;
  const auto stop = [&](uint64_t /*done*/, uint64_t /*total*/) {
    if (++calls == 3) throw std::runtime_error("stop");
  };
  EXPECT_THROW(RunConversion(source, sink, {.progress = stop}),
               std::runtime_error);
  EXPECT_EQ(sink.num_closed(), 2U);
}

TEST_F(StopTest, ProgressEndsAtTheTotal) {
  uint64_t last = 0;
  ConvertOptions options;
  options.progress = [&](uint64_t done, uint64_t) { last = done; };
  RunConversion(source_, *sink_, options);
  EXPECT_EQ(last, 4U * kCount * 4);
}

TEST_F(StopTest, TheFirstFailureIsTheOneThatIsTold) {
  sink_->on_append = [](size_t file) {
    if (file == 2) throw Error(ErrorCode::kResourceExhausted, "disk full");
  };
  const auto error = ErrorOf([&] {
    RunConversion(source_, *sink_, {.memory_limit_bytes = 2 * kMiB, .jobs = 2});
  });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message(), "disk full");
  EXPECT_FALSE(sink_->committed());
  EXPECT_LE(sink_->num_closed(), 2U);
}

TEST_F(StopTest, ADamagedSourceNamesTheTensor) {
  source_.Poison(0);
  const auto error = ErrorOf([&] { RunConversion(source_, *sink_); });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code(), ErrorCode::kDataLoss);
  EXPECT_EQ(error->place().tensor, "p/momentum");
}

}  // namespace
}  // namespace muonstore
