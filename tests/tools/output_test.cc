// What `summary`, `stats` and `diff` print, on checkpoints made by hand.
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testutil/memory_checkpoint.h"
#include "tools/ckpt_inspect/diff_output.h"
#include "tools/ckpt_inspect/state_totals.h"
#include "tools/ckpt_inspect/stats_output.h"
#include "tools/ckpt_inspect/summary_output.h"

namespace muonstore::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testutil::MemoryCheckpoint;
using testutil::UniqueValues;

void Describe(CheckpointInfo& info) {
  info.format = "deepspeed";
  info.producer = "DeepSpeed 0.19.8";
  info.path = "runs/7\x1b[2J/step5";
  info.tag = "step5";
  info.step = 5;
  info.stage = 2;
  info.num_ranks = 2;
  info.optimizer_class = "DeepSpeedZeroOptimizer";
  info.precision = "bf16";
  info.offload = "none";
  info.order = "module";
  ParamGroup muon;
  muon.name = "muon-params";
  muon.optimizer = Optimizer::kMuon;
  muon.hyper_parameters = {{"lr", 0.02}, {"momentum", 0.95}};
  muon.num_parameters = 1;
  muon.num_elements = 1234567;
  info.groups = {muon};
  MomentumRecord& record = info.momentum.emplace();
  record.stored_form = "whole matrices";
  info.counters = {{"global_steps", int64_t{5}}};
  info.aliases = {{"head", "embed"}};
  info.frozen = {"frozen.one", "frozen.two"};
  info.carried = {{.path = "client_state.rng", .summary = "dict(3)"}};
  Finding finding;
  finding.severity = Finding::Severity::kWarning;
  finding.code = "replicas_differ";
  finding.message = "replicas differ by 0.5";
  finding.place.tensor = "w/momentum";
  info.findings = {finding};
  info.total_bytes = 2048;
  info.num_files = 3;
}

void Fill(MemoryCheckpoint& checkpoint) {
  Describe(checkpoint.mutable_info());
  checkpoint.Add({.parameter = "w", .kind = "momentum", .shape = {2, 3}},
                 UniqueValues(6));
  checkpoint.Add({.parameter = "w", .kind = "master", .shape = {2, 3}},
                 UniqueValues(6));
  checkpoint.Add({.parameter = "b", .kind = "master", .shape = {4}},
                 UniqueValues(4));
  checkpoint.Add({.parameter = "w",
                  .kind = "weight",
                  .shape = {2, 3},
                  .dtype = DType::kBF16},
                 UniqueValues(6));
}

TEST(StateTotals, ByKindAndDType) {
  MemoryCheckpoint checkpoint;
  Fill(checkpoint);
  const auto totals = StateTotals(checkpoint);
  ASSERT_EQ(totals.size(), 3U);
  EXPECT_EQ(totals[0].kind, "master");
  EXPECT_EQ(totals[0].num_tensors, 2);
  EXPECT_EQ(totals[0].num_elements, 10);
  EXPECT_EQ(totals[0].stored_bytes, 40U);
  EXPECT_EQ(totals[1].kind, "momentum");
  EXPECT_EQ(totals[2].dtype, DType::kBF16);
}

TEST(SummaryText, SaysEverything) {
  MemoryCheckpoint checkpoint;
  Fill(checkpoint);
  const std::string text = SummaryText(checkpoint, false);
  for (const char* part :
       {"deepspeed, DeepSpeed 0.19.8", "step5, step 5",
        "ZeRO stage 2, 2 ranks, DeepSpeedZeroOptimizer",
        "bf16, offload none, order module", "2.0 KiB in 3 files",
        "mu 0.95, true gradients, stored as whole matrices", "head -> embed",
        "2 parameters", "global_steps 5", "1 value not", "muon-params",
        "1,234,567", "lr 0.02, momentum 0.95", "warning replicas_differ: ",
        "replicas differ by 0.5", "headers of rank 0"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("frozen.one")));
  EXPECT_THAT(SummaryText(checkpoint, true),
              AllOf(HasSubstr("frozen.one, frozen.two"),
                    HasSubstr("client_state.rng: dict(3)")));
}

TEST(SummaryText, UnitsOfMomentum) {
  MemoryCheckpoint checkpoint;
  Fill(checkpoint);
  MomentumRecord& record = *checkpoint.mutable_info().momentum;
  record.unit = MomentumUnit::kLossScaled;
  record.scale_in_file = 512;
  EXPECT_THAT(SummaryText(checkpoint, false),
              HasSubstr("does not prove (it names 512)"));
  record.unit_scale = 256;
  EXPECT_THAT(SummaryText(checkpoint, false), HasSubstr("gradients times 256"));
  checkpoint.mutable_info().momentum.reset();
  EXPECT_THAT(SummaryText(checkpoint, false), HasSubstr("momentum       none"));
}

TEST(SummaryText, OneRankHasNoOthers) {
  MemoryCheckpoint checkpoint;
  Fill(checkpoint);
  checkpoint.mutable_info().num_ranks = 1;
  EXPECT_THAT(SummaryText(checkpoint, false), Not(HasSubstr("rank 0")));
}

TEST(SummaryJson, HasTheFacts) {
  MemoryCheckpoint checkpoint;
  Fill(checkpoint);
  const Json json = SummaryJson(checkpoint);
  EXPECT_EQ(json["schema_version"], 1);
  EXPECT_EQ(json["step"], 5);
  EXPECT_EQ(json["momentum"]["unit"], "true");
  EXPECT_EQ(json["groups"][0]["hyper_parameters"]["lr"], 0.02);
  EXPECT_EQ(json["groups"][0]["step"], nullptr);
  EXPECT_EQ(json["state"][0]["state"], "master");
  EXPECT_EQ(json["tied"]["head"], "embed");
  EXPECT_EQ(json["carried"][0]["path"], "client_state.rng");
  EXPECT_EQ(json["findings"][0]["code"], "replicas_differ");
  EXPECT_EQ(json["from_rank_zero_only"], true);
}

std::vector<MatrixReport> Reports() {
  MemoryCheckpoint checkpoint;
  std::vector<float> broken = UniqueValues(6);
  broken[5] = std::numeric_limits<float>::quiet_NaN();
  checkpoint.Add({.parameter = "bad", .shape = {2, 3}}, broken);
  checkpoint.Add({.parameter = "well", .shape = {4, 3}}, UniqueValues(12));
  StatsRequest request;
  request.tensors = {0, 1};
  request.layout = MatrixLayout::PerHead(2);
  return ComputeStats(checkpoint, request);
}

TEST(StatsText, NamesMatrixAndFirstPlace) {
  const std::string text = StatsText(Reports(), false);
  EXPECT_THAT(text, HasSubstr("bad [1/2]"));
  EXPECT_THAT(text, HasSubstr("nonfinite (1, first at [0, 2])"));
  EXPECT_THAT(text, HasSubstr("4 matrices, 1 nonfinite\n"));
  EXPECT_THAT(text, Not(HasSubstr("cosine")));
  EXPECT_THAT(text, Not(HasSubstr("norm ratio")));
  EXPECT_THAT(StatsText(Reports(), true), HasSubstr("cosine  norm ratio"));
}

TEST(AddStatsJson, CarriesEveryNumber) {
  Json json;
  AddStatsJson(Reports(), json);
  EXPECT_EQ(json["flagged"]["nonfinite"], 1);
  const Json& bad = json["matrices"][1];
  EXPECT_EQ(bad["parameter"], "bad");
  EXPECT_EQ(bad["matrix"], 1);
  EXPECT_EQ(bad["stats"]["first_nonfinite"], (Json{0, 2}));
  EXPECT_EQ(bad["stats"]["stable_rank"], nullptr);
  const Json& well = json["matrices"][3];
  EXPECT_EQ(well["stats"]["singular_values"].size(), 2U);
  EXPECT_EQ(well["cosine"], nullptr);
  EXPECT_EQ(well["norm_ratio"], nullptr);
  EXPECT_TRUE(well["flags"].empty());
}

TEST(DiffText, WorstFirstWithPlaceAndValues) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  Fill(a);
  Fill(b);
  const float value = 9;
  b.SetElement(0, 4, std::as_bytes(std::span(&value, 1)));
  b.mutable_info().groups[0].hyper_parameters = {{"lr", 0.5}, {"new", true}};
  const DiffReport report = DiffCheckpoints(a, b, {});
  const std::string text = DiffText(a.info(), b.info(), report);
  EXPECT_THAT(text, HasSubstr("tensors: 3 equal, 1 different\n"));
  EXPECT_THAT(text, HasSubstr("w/momentum  different  [2, 3]"));
  EXPECT_THAT(text, HasSubstr("[1, 1]"));
  EXPECT_THAT(text, HasSubstr("different group muon-params: lr: 0.02 | 0.5\n"));
  EXPECT_THAT(text, HasSubstr("note group muon-params: new: (none) | true\n"));
  EXPECT_THAT(text, HasSubstr("DIFFERENT state"));
  const Json json = DiffJson(a.info(), b.info(), report);
  EXPECT_EQ(json["same_state"], false);
  EXPECT_EQ(json["counts"]["different"], 1);
  EXPECT_EQ(json["tensors"][0]["first_index"], (Json{1, 1}));
  EXPECT_EQ(json["tensors"][0]["first_a"], 1.25);
  EXPECT_EQ(json["tensors"][0]["first_b"], 9.0);
}

TEST(DiffText, TheSameState) {
  MemoryCheckpoint a;
  Fill(a);
  const std::string text =
      DiffText(a.info(), a.info(), DiffCheckpoints(a, a, {}));
  EXPECT_THAT(text, HasSubstr("tensors: 4 equal\n"));
  EXPECT_THAT(text, HasSubstr("\nthe same state\n"));
}

TEST(DiffText, ShapesOfBothSides) {
  MemoryCheckpoint a;
  MemoryCheckpoint b;
  a.Add({.parameter = "w", .shape = {4, 6}}, UniqueValues(24));
  b.Add({.parameter = "w", .shape = {6, 4}}, UniqueValues(24));
  EXPECT_THAT(DiffText(a.info(), b.info(), DiffCheckpoints(a, b, {})),
              HasSubstr("shape differs  [4, 6] | [6, 4]"));
}

}  // namespace
}  // namespace muonstore::tools
