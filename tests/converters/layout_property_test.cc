// Random checkpoints, cut anew at random: every rank gets what the oracle says,
// element by element, and zeros as padding.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "converters/target_layout.h"
#include "muonstore/convert.h"
#include "muonstore/open.h"
#include "src/state/tensor_index.h"
#include "tests/deepspeed/checkpoint_writer.h"
#include "tests/partition/random_model.h"
#include "tests/testutil/memory_sink.h"
#include "tests/testutil/scratch.h"

namespace muonstore {
namespace {

using deepspeed::CheckpointSpec;
using testutil::MemorySink;

// A source of any form and what to make of it.
struct Case {
  CheckpointSpec spec;
  oracle::Rule target;
  LayoutRequest request;
};

std::vector<int64_t> SmallDims(Random& random) {
  std::vector<int64_t> dims;
  for (int64_t i = random.Pick(1, 3); i > 0; --i) {
    dims.push_back(random.Chance(4) ? 0 : random.Pick(1, 7));
  }
  return dims;
}

void AddParameters(Random& random, CheckpointSpec& spec) {
  const int64_t num_groups = random.Pick(1, 3);
  for (int64_t i = 0; i < random.Pick(2, 12); ++i) {
    const int64_t group = i == 0 ? 0 : random.Pick(0, num_groups - 1);
    spec.parameters.push_back(
        {.dims = i == 0 ? std::vector<int64_t>{3, 2} : SmallDims(random),
         .item_bytes = SizeBytes(spec.precision),
         .group = static_cast<int>(group),
         .is_trained = i == 0 || random.Chance(90),
         .is_muon = group != 1});
  }
}

oracle::Rule RandomRule(Random& random) {
  oracle::Rule rule{.stage = static_cast<int>(random.Pick(1, 3)),
                    .num_ranks = static_cast<int>(random.Pick(1, 11))};
  if (rule.stage == 3) {
    rule.sort_muon = random.Chance(50);
    if (random.Chance(60)) rule.sub_group_size = random.Pick(1, 40);
  } else {
    rule.round_robin = random.Chance(25);
    rule.align_parameters = random.Chance(40);
  }
  return rule;
}

Case RandomLayoutCase(Random& random) {
  constexpr DType kPrecisions[] = {DType::kBF16, DType::kF16, DType::kF32};
  Case c;
  c.spec.precision = kPrecisions[random.Pick(0, 2)];
  AddParameters(random, c.spec);
  c.spec.rule = RandomRule(random);
  c.spec.offloaded = random.Chance(40);
  c.target = RandomRule(random);
  RunSettings& settings = c.request.settings;
  settings.stage = c.target.stage;
  settings.num_ranks = c.target.num_ranks;
  settings.round_robin = c.target.round_robin;
  settings.parameter_alignment = c.target.align_parameters;
  settings.sub_group_size = c.target.sub_group_size;
  if (c.target.stage == 3) c.request.zero_init = !c.target.sort_muon;
  return c;
}

// A file a rank, a segment a flat group, of one kind of state.
std::vector<MemorySink::FilePlan> PlanKind(const Checkpoint& source,
                                           const TargetLayout& layout,
                                           std::string_view kind) {
  const Partitioning& partitioning = layout.partitioning;
  const TensorIndex index(source);
  const size_t num_groups = partitioning.groups().size();
  std::vector<MemorySink::FilePlan> files(
      static_cast<size_t>(partitioning.num_ranks()),
      MemorySink::FilePlan(num_groups));
  for (size_t g = 0; g < num_groups; ++g) {
    const FlatGroup& group = partitioning.groups()[g];
    for (auto& file : files) {
      file[g].num_elements = group.partition_elements;
    }
    for (const int32_t p : group.parameters) {
      const auto tensor = index.Find(
          {layout.specs[static_cast<size_t>(p)].name, std::string(kind)});
      if (!tensor) continue;
      for (const Fragment& f : partitioning.fragments(p)) {
        const auto rank = static_cast<size_t>(f.segment) / num_groups;
        files[rank][g].pieces.push_back({.tensor = *tensor,
                                         .tensor_offset = f.tensor_offset,
                                         .segment_offset = f.segment_offset,
                                         .length = f.length});
      }
    }
  }
  return files;
}

class Examination {
 public:
  Examination(const Case& c, const Checkpoint& source,
              const TargetLayout& layout)
      : case_(c),
        source_(source),
        layout_(layout),
        want_(oracle::WriteFlat(c.spec.parameters, c.target)) {}

  void Run() {
    ASSERT_EQ(layout_.partitioning.groups().size(), want_.size());
    for (const char* kind : {"master", "momentum", "exp_avg", "exp_avg_sq"}) {
      CheckKind(kind);
    }
  }

 private:
  bool HasKind(size_t group, std::string_view kind) const {
    const auto first = static_cast<size_t>(want_[group].order[0]);
    const bool is_muon = case_.spec.parameters[first].is_muon;
    return kind == "master" || (kind == "momentum") == is_muon;
  }

  void CheckKind(std::string_view kind) {
    MemorySink sink(PlanKind(source_, layout_, kind));
    for (size_t t = 0; t < source_.tensors().size(); ++t) {
      if (source_.tensors()[t].key.kind != kind) {
        sink.mutable_losses().push_back({.tensors = {t}, .is_chosen = true});
      }
    }
    Convert(source_, sink, PlanConversion(source_, sink), {});
    for (size_t g = 0; g < want_.size(); ++g) {
      if (!HasKind(g, kind)) continue;
      for (size_t r = 0; r < want_[g].ranks.size(); ++r) {
        EXPECT_EQ(sink.Floats(r, g), Values(kind, g, want_[g].ranks[r]))
            << kind << ", group " << g << ", rank " << r;
      }
    }
  }

  std::vector<float> Values(std::string_view kind, size_t group,
                            const oracle::Labels& labels) const {
    const DType dtype = StoredDType(case_.spec, kind, group);
    std::vector<float> values;
    for (const int64_t label : labels) {
      values.push_back(label == oracle::kPadding
                           ? 0.0F
                           : ValueOf(case_.spec, kind, dtype, label));
    }
    return values;
  }

  const Case& case_;
  const Checkpoint& source_;
  const TargetLayout& layout_;
  std::vector<oracle::Group> want_;
};

std::string Describe(const oracle::Rule& rule) {
  return "stage " + std::to_string(rule.stage) + ", ranks " +
         std::to_string(rule.num_ranks) + (rule.sort_muon ? ", sorted" : "") +
         (rule.round_robin ? ", round robin" : "") +
         (rule.align_parameters ? ", aligned" : "") + ", sub-groups of " +
         std::to_string(rule.sub_group_size);
}

TEST(LayoutPropertyTest, EveryRankGetsWhatTheOracleSays) {
  testutil::Scratch scratch;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    Random random(seed);
    const Case c = RandomLayoutCase(random);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + Describe(c.spec.rule) +
                 " -> " + Describe(c.target));
    const auto tag = scratch / std::to_string(seed);
    deepspeed::MakeCheckpoint(c.spec).Write(tag);
    const auto source = OpenCheckpoint(PosixFileSystem(), tag.string());
    const TargetLayout layout = ChooseLayout(*source, c.request).layout;
    Examination(c, *source, layout).Run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace muonstore
