// Random checkpoints of every form: each element comes back as the value that
// the writer gave it, and verify finds nothing.

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/deepspeed/checkpoint.h"
#include "formats/deepspeed/verify.h"
#include "muonstore/file_system.h"
#include "tests/deepspeed/checkpoint_writer.h"
#include "tests/deepspeed/random_spec.h"
#include "tests/testutil/scratch.h"

namespace muonstore::deepspeed {
namespace {

// Compares an opened checkpoint with its spec.
class Examination {
 public:
  Examination(const CheckpointSpec& spec, const Checkpoint& checkpoint,
              Random& random)
      : spec_(spec),
        checkpoint_(checkpoint),
        random_(random),
        first_(oracle::FirstLabels(spec.parameters)),
        groups_(oracle::WriteFlat(spec.parameters, spec.rule)) {}

  void Run() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const int parameter : groups_[g].order) {
        CheckTrained(g, parameter);
      }
    }
    for (int k = 0; k < static_cast<int>(spec_.parameters.size()); ++k) {
      if (!IsInGroup(spec_.parameters[static_cast<size_t>(k)])) {
        CheckFrozen(k);
      }
    }
    CheckBuffers();
    size_t empty = 0;
    for (size_t g = 0; spec_.empty_in_groups && g < groups_.size(); ++g) {
      empty += CheckEmpty(g);
    }
    EXPECT_EQ(checkpoint_.tensors().size(), num_seen_ + empty);
    EXPECT_EQ(checkpoint_.info().num_ranks, spec_.rule.num_ranks);
    if (spec_.tied) {
      EXPECT_EQ(FindTensor(checkpoint_, {"alias", "weight"}),
                FindTensor(checkpoint_, {"p0", "weight"}));
    }
  }

 private:
  static std::string Name(int parameter) {
    return "p" + std::to_string(parameter);
  }

  bool IsWhole(std::string_view kind) const {
    return kind == "momentum" && spec_.rule.stage < 3 && !spec_.offloaded &&
           !spec_.bf16_optimizer;
  }

  void CheckTrained(size_t g, int parameter) {
    const auto& info = spec_.parameters[static_cast<size_t>(parameter)];
    const std::vector<std::string> kinds =
        info.is_muon
            ? std::vector<std::string>{"master", "momentum"}
            : std::vector<std::string>{"master", "exp_avg", "exp_avg_sq"};
    for (const std::string& kind : kinds) {
      CheckState(g, parameter, kind);
    }
    const size_t weight = Find(Name(parameter), "weight", info.dims);
    const bool derived = spec_.rule.stage == 3;
    EXPECT_EQ(checkpoint_.tensors()[weight].derived, derived);
    EXPECT_EQ(checkpoint_.tensors()[weight].stored_bytes,
              derived ? 0 : Bytes(CountOf(info), spec_.precision));
    CheckValues(weight, "weight", spec_.precision, Labels(parameter));
  }

  void CheckState(size_t g, int parameter, const std::string& kind) {
    const auto& info = spec_.parameters[static_cast<size_t>(parameter)];
    const size_t tensor = Find(Name(parameter), kind, info.dims);
    const std::vector<int64_t> labels = Labels(parameter);
    const auto owners = Owners(g, labels);
    EXPECT_EQ(RanksOf(checkpoint_, tensor),
              std::vector<int32_t>(owners.begin(), owners.end()));
    const DType dtype = StoredDType(spec_, kind, g);
    EXPECT_EQ(
        checkpoint_.tensors()[tensor].stored_bytes,
        Bytes(CountOf(info), dtype) * (IsWhole(kind) ? owners.size() : 1));
    CheckValues(tensor, kind, dtype, labels, MissingLabels(g, kind));
  }

  std::vector<int64_t> Labels(int parameter) const {
    const auto index = static_cast<size_t>(parameter);
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < CountOf(spec_.parameters[index]); ++i) {
      labels.push_back(first_[index] + i);
    }
    return labels;
  }

  std::set<int32_t> Owners(size_t g, const std::vector<int64_t>& labels) const {
    std::set<int32_t> owners;
    for (size_t rank = 0; rank < groups_[g].ranks.size(); ++rank) {
      for (const int64_t label : groups_[g].ranks[rank]) {
        if (std::find(labels.begin(), labels.end(), label) != labels.end()) {
          owners.insert(static_cast<int32_t>(rank));
        }
      }
    }
    return owners;
  }

  // What an elastic save cuts off the end of whole matrices.
  std::set<int64_t> MissingLabels(size_t g, std::string_view kind) const {
    std::set<int64_t> missing;
    for (int rank = 0;
         spec_.elastic && IsWhole(kind) && rank < spec_.rule.num_ranks;
         ++rank) {
      const std::vector<int64_t> whole = WholeLabels(spec_, groups_[g], rank);
      const int64_t cut = TailPadding(groups_[g], rank);
      const auto& own = groups_[g].ranks[static_cast<size_t>(rank)];
      for (size_t i = 0; i < whole.size(); ++i) {
        if (static_cast<int64_t>(whole.size() - i) <= cut &&
            std::find(own.begin(), own.end(), whole[i]) != own.end()) {
          missing.insert(whole[i]);
        }
      }
    }
    return missing;
  }

  static uint64_t Bytes(int64_t count, DType dtype) {
    return static_cast<uint64_t>(count * SizeBytes(dtype));
  }

  size_t Find(const std::string& name, const std::string& kind,
              const std::vector<int64_t>& dims) {
    const auto tensor = FindTensor(checkpoint_, {name, kind});
    if (!tensor) {
      throw Error(ErrorCode::kInternal, name + "/" + kind + " is not there");
    }
    EXPECT_EQ(checkpoint_.tensors()[*tensor].shape, Shape(dims));
    ++num_seen_;
    return *tensor;
  }

  void CheckValues(size_t tensor, const std::string& kind, DType dtype,
                   const std::vector<int64_t>& labels,
                   const std::set<int64_t>& missing = {}) {
    const CheckpointTensor& info = checkpoint_.tensors()[tensor];
    EXPECT_EQ(info.dtype, dtype);
    std::vector<float> expected;
    std::set<int64_t> found_missing;
    for (const int64_t label : labels) {
      expected.push_back(ValueOf(spec_, kind, dtype, label));
    }
    for (const ElementRange& range : info.missing) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        found_missing.insert(labels[static_cast<size_t>(i)]);
      }
    }
    std::set<int64_t> own_missing;
    for (const int64_t label : labels) {
      if (missing.contains(label)) {
        own_missing.insert(label);
      }
    }
    EXPECT_EQ(found_missing, own_missing) << info.key.ToString();
    if (!found_missing.empty()) {
      return;
    }
    const auto size = static_cast<int64_t>(labels.size());
    EXPECT_EQ(ReadTensorF32(checkpoint_, tensor, {0, size}), expected)
        << info.key.ToString();
    const int64_t begin = random_.Pick(0, size);
    const int64_t end = random_.Pick(begin, size);
    EXPECT_EQ(
        ReadTensorF32(checkpoint_, tensor, {begin, end}),
        std::vector<float>(expected.begin() + begin, expected.begin() + end))
        << info.key.ToString();
  }

  void CheckFrozen(int parameter) {
    const auto& info = spec_.parameters[static_cast<size_t>(parameter)];
    const size_t tensor = Find(Name(parameter), "weight", info.dims);
    CheckValues(tensor, "weight", spec_.precision, Labels(parameter));
    EXPECT_EQ(checkpoint_.tensors()[tensor].stored_bytes,
              Bytes(CountOf(info), spec_.precision));
    const std::vector<std::string>& frozen = checkpoint_.info().frozen;
    EXPECT_NE(std::find(frozen.begin(), frozen.end(), Name(parameter)),
              frozen.end());
  }

  void CheckBuffers() {
    int64_t label = first_.back() + CountOf(spec_.parameters.back());
    for (int64_t i = 0; i < spec_.num_buffers; ++i) {
      const size_t tensor = Find("buffer" + std::to_string(i), "buffer", {2});
      CheckValues(tensor, "buffer", spec_.precision, {label, label + 1});
      label += 2;
    }
  }

  // Parameters without elements are listed and own nothing.
  size_t CheckEmpty(size_t g) const {
    const std::string prefix = "e" + std::to_string(g) + "_";
    size_t count = 0;
    for (size_t t = 0; t < checkpoint_.tensors().size(); ++t) {
      const CheckpointTensor& tensor = checkpoint_.tensors()[t];
      if (tensor.key.parameter.starts_with(prefix)) {
        EXPECT_TRUE(checkpoint_.fragments(t).empty());
        EXPECT_EQ(tensor.stored_bytes, 0U);
        EXPECT_EQ(ReadTensorF32(checkpoint_, t, {0, 0}), std::vector<float>());
        ++count;
      }
    }
    EXPECT_GE(count, groups_[g].order.size() + 1);
    return count;
  }

  const CheckpointSpec& spec_;
  const Checkpoint& checkpoint_;
  Random& random_;
  std::vector<int64_t> first_;
  std::vector<oracle::Group> groups_;
  size_t num_seen_ = 0;
};

void ExpectNoFault(const std::string& tag, bool elastic) {
  const VerifyReport report = VerifyTag(PosixFileSystem(), tag, {});
  for (const Finding& finding : report.findings) {
    const bool is_loss = elastic && finding.code == "missing_elements";
    EXPECT_TRUE(is_loss || finding.severity == Finding::Severity::kNote)
        << finding.ToString();
  }
}

void ExamineSpec(const CheckpointSpec& spec, Random& random) {
  const testutil::Scratch scratch;
  const std::string tag = (scratch / "global_step5").string();
  MakeCheckpoint(spec).Write(tag);
  try {
    const auto checkpoint = DeepSpeedCheckpoint::Open(
        PosixFileSystem(), tag, {.allow_loss = spec.elastic});
    Examination(spec, *checkpoint, random).Run();
    ExpectNoFault(tag, spec.elastic);
  } catch (const Error& error) {
    ADD_FAILURE() << error.what();
  }
}

void ExamineRandomSpecs(int stage) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed * 3 + static_cast<uint64_t>(stage));
    const CheckpointSpec spec = RandomSpec(random, stage);
    SCOPED_TRACE(testing::Message()
                 << "seed " << seed << ": " << Describe(spec));
    ExamineSpec(spec, random);
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

TEST(ReaderPropertyTest, Stage1) { ExamineRandomSpecs(1); }
TEST(ReaderPropertyTest, Stage2) { ExamineRandomSpecs(2); }
TEST(ReaderPropertyTest, Stage3) { ExamineRandomSpecs(3); }

CheckpointSpec TinySpec(int stage) {
  CheckpointSpec spec;
  spec.parameters = {{.dims = {1, 1}},
                     {.dims = {1}, .group = 1, .is_muon = false}};
  spec.rule = {.stage = stage, .num_ranks = 5};
  return spec;
}

TEST(ReaderPropertyTest, MoreRanksThanElements) {
  Random random(1);
  for (const int stage : {1, 2, 3}) {
    for (const bool state_on_empty_ranks : {false, true}) {
      CheckpointSpec spec = TinySpec(stage);
      spec.state_on_empty_ranks = state_on_empty_ranks;
      SCOPED_TRACE(Describe(spec));
      ExamineSpec(spec, random);
    }
  }
}

// BF16_Optimizer gives its last rank the padding of all ranks.
TEST(ReaderPropertyTest, PaddingOfBf16OptimizerOverSeveralRanks) {
  Random random(1);
  CheckpointSpec spec = TinySpec(1);
  spec.bf16_optimizer = true;
  ExamineSpec(spec, random);
}

}  // namespace
}  // namespace muonstore::deepspeed
