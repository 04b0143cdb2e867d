// The property that saves stand on: whatever steps and leases do while a
// snapshot is read, its bytes are those of the call.
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "muonstore/store.h"
#include "src/store/snapshot.h"
#include "src/store/store_impl.h"
#include "tests/store/fake_step.h"
#include "tests/store/store_ranks.h"
#include "tests/testutil/fault_tier.h"

namespace muonstore {
namespace {

using testutil::AllIn;
using testutil::FakeStep;
using testutil::FaultTier;
using testutil::RunConnectedRanks;
using testutil::StepBytes;

using Random = std::mt19937_64;

int64_t Draw(Random& random, int64_t low, int64_t high) {
  return low +
         static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

std::vector<ParameterSpec> RandomModel(Random& random) {
  std::vector<ParameterSpec> model;
  const int64_t count = Draw(random, 1, 9);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t what = Draw(random, 0, 6);
    ParameterSpec spec{
        .name = "p" + std::to_string(i),
        .shape = Shape({Draw(random, 1, 9), Draw(random, 1, 40)}),
        .weight_dtype = DType::kBF16};
    if (what == 0) {
      spec.optimizer = Optimizer::kNone;
    } else if (what <= 3) {
      spec.optimizer = Optimizer::kMuon;
    } else {
      spec.optimizer = Optimizer::kAdam;
      spec.group = 1;
    }
    model.push_back(spec);
  }
  return model;
}

using SegmentKey = std::pair<std::string, int32_t>;

// What the segments of this rank hold, told by what was written.
class Expected {
 public:
  explicit Expected(StateStore::Impl& store) : store_(store) {
    for (const SegmentId& id :
         StepOrder(store.parameters, store.partitioning)) {
      bytes_[{std::string(id.kind), id.flat_group}].resize(
          store.segments->size_bytes(id.kind, id.flat_group));
    }
  }

  void Step() {
    for (auto& [key, bytes] : bytes_) {
      bytes =
          StepBytes(key.first, key.second, store_.record.steps, bytes.size());
    }
  }

  void Write(const std::string& kind, const StatePiece<std::byte>& piece,
             DType dtype) {
    auto& bytes = bytes_.at({kind, store_.flat_group_of(piece.fragment)});
    std::ranges::copy(
        piece.data,
        bytes.begin() + piece.fragment.segment_offset * SizeBytes(dtype));
  }

  const std::map<SegmentKey, std::vector<std::byte>>& bytes() const {
    return bytes_;
  }

 private:
  StateStore::Impl& store_;
  std::map<SegmentKey, std::vector<std::byte>> bytes_;
};

// Reads slowly, lets go of each segment; what differs is the result.
std::string Save(Snapshot& snapshot, const Expected& expected, uint64_t seed) {
  Random random(seed);
  std::string wrong;
  const size_t count = snapshot.segments().size();
  // Some saves fail half-way, and let go of the rest.
  const size_t end = Draw(random, 0, 3) == 0 ? count / 2 : count;
  for (size_t i = 0; i < end; ++i) {
    const SnapshotSegment& segment = snapshot.segments()[i];
    const auto& right =
        expected.bytes().at({std::string(segment.kind), segment.flat_group});
    std::vector<std::byte> read(right.size());
    for (size_t at = 0; at < read.size();) {
      const auto part = std::span(read).subspan(at).first(std::min<size_t>(
          static_cast<size_t>(Draw(random, 1, 96)), read.size() - at));
      snapshot.Read(i, at, part)->Wait();
      at += part.size();
      std::this_thread::yield();
    }
    const auto memory = snapshot.memory(i);
    if (read != right ||
        (!memory.empty() && !std::ranges::equal(memory, right))) {
      wrong += std::string(segment.kind) + std::to_string(segment.flat_group);
      wrong += " ";
    }
    snapshot.Release(i);
  }
  for (size_t i = end; i < count; ++i) snapshot.Release(i);
  return wrong;
}

// The same tensors on every rank, each its own bytes.
void WriteByLeases(StateStore& store, Expected& expected, Random& random,
                   uint64_t salt) {
  const auto model = store.parameters();
  const int64_t count = Draw(random, 0, 4);
  for (int64_t i = 0; i < count; ++i) {
    const auto parameter = static_cast<int32_t>(
        Draw(random, 0, static_cast<int64_t>(model.size()) - 1));
    const auto kinds = store.kinds(parameter);
    const auto kind_draw = static_cast<size_t>(Draw(random, 0, 59));
    if (kinds.empty()) continue;
    const StateKind& kind = kinds[kind_draw % kinds.size()];
    if (kind == kGradient) continue;
    WriteLease lease =
        store.Write(model[static_cast<size_t>(parameter)].name, kind);
    Random values(salt * 1000 + static_cast<uint64_t>(i));
    for (const StatePiece<std::byte>& piece : lease.pieces()) {
      for (std::byte& byte : piece.data) {
        byte = static_cast<std::byte>(values());
      }
      expected.Write(kind, piece, lease.dtype());
    }
    lease.Commit();
  }
}

void ExpectCurrent(const StateStore::Impl& store, const Expected& expected) {
  for (const auto& [key, bytes] : expected.bytes()) {
    EXPECT_EQ(testutil::CurrentBytes(store, key.first, key.second), bytes)
        << key.first << key.second;
  }
}

enum class Where { kDefault, kNvme, kFiles, kMixed };

struct Case {
  Where where;
  int32_t stage;
  int32_t num_ranks;
  uint64_t seed;
};

StoreOptions OptionsOf(const Case& of, Random& random,
                       const std::shared_ptr<FaultTier>& files) {
  StoreOptions options;
  if (of.where == Where::kNvme) {
    options.tiers = AllIn(MakeNvmeTier(
        {.directory = std::filesystem::temp_directory_path().string()}));
  }
  if (of.where == Where::kFiles) options.tiers = AllIn(files);
  if (of.where == Where::kMixed) {
    options.tiers = AllIn(files, static_cast<uint64_t>(Draw(random, 1, 1500)));
    options.tiers.kinds["momentum"] = {};
  }
  const int64_t cap = Draw(random, 0, 2);
  if (cap > 0) {
    options.max_snapshot_bytes =
        static_cast<uint64_t>(cap == 1 ? 1 : Draw(random, 200, 4000));
  }
  return options;
}

void RunCase(const Case& of,
             const std::shared_ptr<Communicator>& communicator) {
  Random random(of.seed);  // The same on every rank.
  const auto files = std::make_shared<FaultTier>(
      testutil::FaultTierOptions{.reorder = true, .seed = of.seed});
  const auto model = RandomModel(random);
  StoreOptions options = OptionsOf(of, random, files);
  options.communicator = communicator;
  StateStore store(
      model,
      Partitioning::Build(model, {.stage = of.stage,
                                  .num_ranks = of.num_ranks,
                                  .sub_group_size = Draw(random, 20, 400)}),
      options);
  StateStore::Impl& impl = store.impl();
  Expected expected(impl);
  for (uint64_t round = 0; round < 5; ++round) {
    const uint64_t salt = round * 64 + static_cast<uint64_t>(store.rank());
    WriteByLeases(store, expected, random, salt * 4 + 1);
    const auto snapshot = TakeSnapshot(impl, {.concurrent = true});
    std::string wrong;
    std::thread saver(
        [&, at_call = expected] { wrong = Save(*snapshot, at_call, salt); });
    const int64_t num_steps = Draw(random, 0, 3);
    WriteByLeases(store, expected, random, salt * 4 + 2);
    for (int64_t step = 0; step < num_steps; ++step) {
      FakeStep(impl);
      expected.Step();
    }
    saver.join();
    EXPECT_EQ(wrong, "") << "round " << round;
    ExpectCurrent(impl, expected);
  }
  EXPECT_EQ(files->counts().races, 0);
  store.Close();
}

class MutateDuringSaveTest
    : public ::testing::TestWithParam<std::tuple<Where, int32_t, int32_t>> {};

TEST_P(MutateDuringSaveTest, TheSnapshotIsOfTheCall) {
  const auto [where, stage, num_ranks] = GetParam();
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const Case of{
        where, stage, num_ranks,
        seed * 1000 + static_cast<uint64_t>(static_cast<int>(where) * 100 +
                                            stage * 10 + num_ranks)};
    SCOPED_TRACE(of.seed);
    RunConnectedRanks(num_ranks, [&](const auto& communicator) {
      RunCase(of, communicator);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    TiersStagesAndRanks, MutateDuringSaveTest,
    ::testing::Combine(::testing::Values(Where::kDefault, Where::kNvme,
                                         Where::kFiles, Where::kMixed),
                       ::testing::Values(1, 2, 3), ::testing::Values(1, 2, 3)));

}  // namespace
}  // namespace muonstore
